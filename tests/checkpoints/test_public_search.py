"""Models in Hugging Face's layout write what transformers writes, and score texts as it does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from scaleformer.checkpoints import public
from scaleformer.checkpoints.model_file import load_model
from scaleformer.translation.log_probabilities import perplexity, rescore, score_documents
from scaleformer.translation.translations import DocumentHypothesis
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import PAD, SEP
from tests.public_models import KINDS, MOST, SEARCH, TAGS, Pair, lines, make_pairs, source_of, transformers

pytestmark = pytest.mark.filterwarnings("ignore:.*sacremoses")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    return make_pairs(tmp_path_factory)


def generated(pair: Pair, texts: list[str], beams: int, length_penalty: float) -> list[list[int]]:
    """What transformers writes, in our ids, up to the end of the sentence; longer texts are cut at MOST."""
    more = {}
    if pair.kind in ("m2m100", "nllb"):
        code = TAGS[pair.kind].split("-")[1]
        more = {
            "forced_bos_token_id": pair.tokenizer.convert_tokens_to_ids(code if pair.kind == "nllb" else f"__{code}__")
        }
    tokens = pair.tokenizer(source_of(pair, texts), return_tensors="pt", padding=True)
    rows = {row: n for n, row in enumerate(pair.vocabularies.target.rows) if n not in pair.vocabularies.target.new}
    found = pair.theirs.generate(
        **tokens,
        num_beams=beams,
        length_penalty=length_penalty,
        max_new_tokens=MOST,
        do_sample=False,
        early_stopping=False,
        **more,
    )
    return [[rows[n] for n in row.tolist()[1:]] for row in found]


@pytest.mark.parametrize(
    ("kind", "beams", "length_penalty"),
    [
        *((kind, beams, 0.0) for kind in KINDS for beams in (1, 4)),
        # of the others transformers counts the language code in the length (docs/public-models.md)
        *((kind, 4, 1.0) for kind in ("marian", "tagged", "separate")),
    ],
)
def test_the_search_writes_what_generate_writes(
    kind: str, beams: int, length_penalty: float, pairs: Callable[[str], Pair]
) -> None:
    compared, written = compare_texts(pairs(kind), beams, length_penalty)
    assert compared >= (40 if beams == 1 else 5)
    assert written or beams > 1


def compare_texts(pair: Pair, beams: int, length_penalty: float) -> tuple[int, int]:
    """How many texts were found to be those of transformers, and how many of them are not empty."""
    texts = lines(40, seed=5)[0]
    config = SEARCH if beams == 1 else replace(SEARCH, strategy="beam", beam_size=beams, length_penalty=length_penalty)
    translator = Translator(pair.ours, config, TAGS.get(pair.kind))
    found = translator.translate_documents(translator.request([[text] for text in texts], mode="segment"))
    compared = texts_written = 0
    for ours, theirs in zip(found, generated(pair, texts, beams, length_penalty), strict=True):
        ended = SEP in theirs
        if not ended and beams > 1:  # what is cut is ranked otherwise
            continue
        theirs = theirs[: theirs.index(SEP)] if ended else theirs[:MOST]
        written = ours.hypotheses[0].segments[0]
        assert written == pair.ours.target_tokenizer.decode(theirs)
        compared += 1
        texts_written += bool(written)
    return compared, texts_written


def edited(pair: Pair, folder: Path, shift: float = 0.0, **search: Any) -> Pair:
    """A copy of a Marian with other settings of its search; shift: of the bias of all tokens but `<pad>`."""
    shutil.copytree(pair.folder, folder)
    weights = load_file(folder / "model.safetensors")
    weights["final_logits_bias"][0, :-1] += shift
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **search}))
    theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
    return pair._replace(folder=folder, theirs=theirs, ours=load_model(folder))


def test_scores_may_leave_pads_out(pairs: Callable[[str], Pair], tmp_path: Path) -> None:
    """`<pad>` has most of the softmax here, and no share in the scores of transformers."""
    never = [[pairs("marian").tokenizer.pad_token_id]]
    pair = edited(pairs("marian"), tmp_path / "model", -8.0, renormalize_logits=True, bad_words_ids=never)
    assert pair.ours.model.state_dict()["output_bias"][PAD] == public.UNWRITTEN
    assert compare_texts(pair, 4, 1.0)[0] > 5
    texts = lines(40, seed=5)[0]
    how: dict[str, Any] = {"num_beams": 4, "max_new_tokens": MOST, "output_scores": True}
    tokens = pair.tokenizer(texts, return_tensors="pt", padding=True)
    theirs = pair.theirs.generate(**tokens, **how, return_dict_in_generate=True)
    translator = Translator(pair.ours, replace(SEARCH, strategy="beam", beam_size=4, length_penalty=1.0))
    found = translator.translate_documents(translator.request([[text] for text in texts], mode="segment"))
    ended = [n for n, one in enumerate(found) if one.hypotheses[0].finished]
    assert len(ended) > 5
    for n in ended:
        assert found[n].hypotheses[0].score == pytest.approx(float(theirs.sequences_scores[n]), abs=1e-3)


def test_settings_of_a_search_that_ours_lacks_are_named(pairs: Callable[[str], Pair], tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"model: early_stopping=True, no_repeat_ngram_size=3: not read"):
        edited(pairs("marian"), tmp_path / "model", early_stopping=True, no_repeat_ngram_size=3, min_length=0)
    older = shutil.copytree(pairs("marian").folder, tmp_path / "older")  # all settings in one file
    (older / "generation_config.json").unlink()
    settings = {**json.loads((older / "config.json").read_text()), "min_length": 2, "num_beams": 3}
    (older / "config.json").write_text(json.dumps(settings))
    with pytest.warns(UserWarning, match=r"older: min_length=2: not read"):
        assert load_model(older).config["decoding"]["beam_size"] == 3
    with pytest.raises(ValueError, match=r"other: its length_penalty is -1\.0, which prefers short texts"):
        edited(pairs("marian"), tmp_path / "other", num_beams=2, length_penalty=-1.0)


def test_texts_are_scored_as_transformers_scores_them(pairs: Callable[[str], Pair]) -> None:
    """Segment by segment, up to the end of each; there is no end of the document, which the model cannot write."""
    pair = pairs("marian")
    sources, targets = (side[:3] for side in lines(3, seed=4))
    translator = Translator(pair.ours, SEARCH)
    [score] = score_documents(translator, [sources], [targets], alone=True)
    assert (score.end, score.ends) == (0.0, 0)
    for source, target, segment in zip(sources, targets, score.segments, strict=True):
        labels = pair.tokenizer(text_target=[target], return_tensors="pt")["input_ids"]
        start = torch.tensor([[pair.theirs.config.decoder_start_token_id]])
        before = torch.cat([start, labels[:, :-1]], 1)
        logits = pair.theirs(**pair.tokenizer([source], return_tensors="pt"), decoder_input_ids=before).logits[0]
        wanted = logits.log_softmax(1).gather(1, labels[0][:, None]).sum().item()
        assert segment.log_probability == pytest.approx(wanted, abs=2e-3)
        assert segment.tokens == labels.shape[1]
    [empty] = score_documents(translator, [sources], [[]], alone=True)
    assert (empty.tokens, empty.log_probability) == (0, 0.0)
    with pytest.raises(ValueError, match="no translations to compute the perplexity of"):
        perplexity([empty])
    [listed] = rescore(translator, [sources], [[DocumentHypothesis(tuple(targets), 0.0, 0.0, True)]])
    assert listed[0].own.log_probability == pytest.approx(score.log_probability, abs=1e-4)


@pytest.mark.parametrize("kind", ["tagged", "nllb"])
def test_scores_follow_the_tag(kind: str, pairs: Callable[[str], Pair]) -> None:
    other = {"tagged": "es", "nllb": "fra_Latn-eng_Latn"}[kind]
    loaded = load_model(pairs(kind).folder)
    with_other, own = Translator(loaded, SEARCH, other), Translator(loaded, SEARCH, TAGS[kind])
    texts = [lines(2)[0]], [lines(2)[1]]
    [asked], [wanted], [different] = (
        score_documents(with_other, *texts, tag=TAGS[kind]),
        score_documents(own, *texts),
        score_documents(with_other, *texts),
    )
    assert asked == wanted
    assert asked != different
    assert with_other.of(TAGS[kind]).tag_tokens() == []
