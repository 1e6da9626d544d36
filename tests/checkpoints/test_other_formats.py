"""Exported for other programs, models translate as they do here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from scaleformer.checkpoints import other_formats
from scaleformer.checkpoints.model_file import export_model, load_model
from scaleformer.checkpoints.other_formats import write_ctranslate2, write_transformers
from scaleformer.commands import main
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.config import DecodingConfig
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS, PAD, SEP, SPECIAL_PIECES
from tests.public_models import TAGS, lines, make, transformers
from tests.runs import make_run

MOST = 24
SEARCH = DecodingConfig(
    strategy="greedy", loop_ngram_size=0, merge_segments=False, max_length_ratio=0.0, max_length_offset=MOST
)
TEXTS = lines(25, seed=5)[0]
pytestmark = pytest.mark.filterwarnings("ignore:.*sacremoses")


def translated(folder: Path, tag: str | None, beams: int = 1) -> list[str]:
    search = SEARCH if beams == 1 else replace(SEARCH, strategy="beam", beam_size=beams, length_penalty=0.0)
    found = Translator(load_model(folder), search, tag).translate([[text] for text in TEXTS], mode="segment")
    return [text for [text] in found]


@pytest.mark.parametrize("kind", ["tagged", "separate"])
def test_a_marian_folder_translates_as_the_model_did(kind: str, tmp_path: Path) -> None:
    make(tmp_path / "model", kind)
    wanted = translated(tmp_path / "model", TAGS.get(kind))
    write_transformers(load_model(tmp_path / "model"), tmp_path / "out")
    assert translated(tmp_path / "out", TAGS.get(kind)) == wanted
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "out")
    texts = [f">>{TAGS[kind]}<<{text}" if kind in TAGS else text for text in TEXTS]
    tokens = model.generate(**tokenizer(texts, return_tensors="pt", padding=True), max_new_tokens=MOST, num_beams=1)
    assert tokenizer.batch_decode(tokens, skip_special_tokens=True) == [text.replace(" \u2047 ", "") for text in wanted]


def test_a_marian_folder_keeps_the_search(tmp_path: Path) -> None:
    make(tmp_path / "model", "marian")
    path = tmp_path / "model" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_beams": 3, "length_penalty": 0.6}))
    write_transformers(load_model(tmp_path / "model"), tmp_path / "out")
    found = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert (found.num_beams, found.length_penalty) == (3, 0.6)
    again = load_model(tmp_path / "out").config["decoding"]
    assert (again["strategy"], again["beam_size"], again["length_penalty"]) == ("beam", 3, 0.6)


# after a prefix, its beam drops some translations that end at once
@pytest.mark.parametrize(("kind", "beams"), [("tagged", 1), ("tagged", 4), ("nllb", 1)])
def test_ctranslate2_writes_the_same(kind: str, beams: int, tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    make(tmp_path / "model", kind)
    wanted = translated(tmp_path / "model", TAGS[kind], beams)
    loaded = load_model(tmp_path / "model").tagged(TAGS[kind])
    write_ctranslate2(loaded, tmp_path / "out")
    source, target = (Tokenizer((tmp_path / "out" / f"{side}.model").read_bytes()) for side in ("source", "target"))
    source, begin = source.with_prefix(loaded.source_tokenizer.prefix), loaded.target_tokenizer.prefix
    found = library.Translator(str(tmp_path / "out"), intra_threads=1).translate_batch(
        [[source.piece(token) for token in source.encode(text)] for text in TEXTS],
        target_prefix=[[target.piece(token) for token in begin]] * len(TEXTS) if begin else None,
        beam_size=beams,
        length_penalty=0.0,
        max_decoding_length=MOST,
        min_decoding_length=0,
    )
    ids = {target.piece(token): token for token in range(target.vocab_size)}
    ended = 0
    for ours, theirs in zip(wanted, found, strict=True):
        tokens = [ids[piece] for piece in theirs.hypotheses[0]]
        if beams == 1 or len(tokens) < MOST:  # what is cut is ranked otherwise
            assert ours == target.decode(tokens)
            ended += 1
    assert ended


def test_ctranslate2_writes_the_same_as_a_model_trained_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = pytest.importorskip("ctranslate2")
    loaded = load_model(make_run(tmp_path / "run", attention={"name": "softmax"}, seed=10))
    with torch.no_grad():  # so that texts differ
        for name, weights in loaded.model.named_parameters():
            if weights.dim() > 1 and not name.startswith("target"):
                weights *= 4
    export_model(loaded, tmp_path / "model")
    main(["export", f"checkpoint={tmp_path / 'model'}", f"output={tmp_path / 'out'}", "format=ctranslate2"])
    assert 'call translate_batch([[*pieces, "<sep>"]], end_token="<sep>")' in capsys.readouterr().out
    texts = [f"a cat {verb} the dog {end}" for verb in ("sees", "runs", "it", "tree") for end in ("a", "the cat", "")]
    translator = Translator(load_model(tmp_path / "model"), SEARCH)
    wanted = [text for [text] in translator.translate([[text] for text in texts], mode="segment")]
    source, target = (Tokenizer((tmp_path / "out" / f"{side}.model").read_bytes()) for side in ("source", "target"))
    never = {PAD, BOS, EOS, *range(SEP + 1, len(SPECIAL_PIECES))}  # here; a trained model knows without being told
    exported = library.Translator(str(tmp_path / "out"), intra_threads=1)
    ids = {target.piece(token): token for token in range(target.vocab_size)}

    def translated_by_it(*end: str) -> list[str]:
        found = exported.translate_batch(
            [[*map(source.piece, source.encode(text)), *end] for text in texts],
            beam_size=1,
            end_token="<sep>",
            max_decoding_length=MOST,
            min_decoding_length=0,
            suppress_sequences=[[target.piece(token)] for token in never],
        )
        return [target.decode([ids[piece] for piece in one.hypotheses[0]]) for one in found]

    assert translated_by_it("<sep>") == wanted
    assert translated_by_it() != wanted
    assert len(set(wanted)) > 6


def test_other_attentions_are_refused(tmp_path: Path) -> None:
    run = load_model(make_run(tmp_path / "run", attention={"name": "segment_recall"}))
    for write in (write_transformers, write_ctranslate2):
        with pytest.raises(ValueError, match=r"softmax attention with sinusoids alone, this model has segment_recall"):
            write(run, tmp_path / "out")
    anew = load_model(make_run(tmp_path / "anew", attention={"name": "softmax"}, sinusoids="segments"))
    with pytest.raises(ValueError, match=r"this model has sinusoids that begin anew .* model\.sinusoids=auto on its"):
        write_ctranslate2(anew, tmp_path / "out")
    plain = load_model(make_run(tmp_path / "softmax", attention={"name": "softmax"}))
    with pytest.raises(ValueError, match=r"Marian has model\.norm=post .* take format=ctranslate2"):
        write_transformers(plain, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "model", "separate")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    loaded = load_model(tmp_path / "model")
    with pytest.raises(ValueError, match="already exists and is not an empty folder"):
        write_transformers(loaded, tmp_path / "full")
    monkeypatch.setattr(other_formats, "_write", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=r"the model cannot be written \(No space left on device\)"):
        write_transformers(loaded, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "model"]
