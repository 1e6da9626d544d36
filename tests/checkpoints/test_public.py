"""Models in Hugging Face's layout are read exactly: tokens, logits and texts are those of transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from scaleformer.checkpoints import public, public_vocabularies
from scaleformer.checkpoints.model_file import export_model, load_model
from scaleformer.data.batching import Example, collate
from scaleformer.data.tokenizer_import import prefixes
from scaleformer.model.transformer import Transformer
from scaleformer.training.initialization import transfer_weights
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS, SEP
from tests.public_models import CODES, KINDS, SEARCH, TAGS, Pair, lines, make_pairs, source_of, transformers

UNUSUAL = ["  two   spaces ", "", "ﬁne ①② ｆｕｌｌ", "☃ É́ ẞ x☃☃", "▁ _", "a\tb\u00a0c\u200bd", "日本 и еще", "x" * 60]
pytestmark = pytest.mark.filterwarnings("ignore:.*sacremoses")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    return make_pairs(tmp_path_factory)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_theirs(kind: str, pairs: Callable[[str], Pair]) -> None:
    pair = pairs(kind)
    for text in [*lines()[0][:100], *lines()[1][:100], *UNUSUAL]:
        source = [pair.vocabularies.source.rows[n] for n in pair.ours.source_tokenizer.encode(text)]
        target = [pair.vocabularies.target.rows[n] for n in pair.ours.target_tokenizer.encode(text)]
        if kind == "nllb":  # what reads it for transformers keeps spaces at the end, which sentencepiece drops
            text = text.strip()
        assert source == pair.tokenizer(source_of(pair, [text])[0])["input_ids"][:-1]
        assert target == pair.tokenizer(text_target=text)["input_ids"][:-1]


def test_texts_come_back_as_sentencepiece_writes_them(pairs: Callable[[str], Pair]) -> None:
    for kind in KINDS:
        pair = pairs(kind)
        for text in lines(20)[1]:
            ids = pair.tokenizer(text_target=text)["input_ids"]
            if pair.tokenizer.unk_token_id not in ids:
                own = pair.ours.target_tokenizer
                assert own.decode(own.encode(text)) == pair.tokenizer.decode(ids, skip_special_tokens=True)


def compare(pair: Pair, model: Transformer, source: str, target: str) -> float:
    """The largest difference of logits, of one text by teacher forcing and step by step."""
    ours, theirs = pair.ours, pair.theirs
    written = ours.target_tokenizer.encode(target)
    batch = collate(
        [Example("", np.array([*ours.source_tokenizer.encode(source), SEP, EOS]), np.array([*written, SEP, EOS]))]
    )
    start = torch.tensor([[theirs.config.decoder_start_token_id]])
    labels = pair.tokenizer(text_target=[target], return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        reference = theirs(
            **pair.tokenizer(source_of(pair, [source]), return_tensors="pt"),
            decoder_input_ids=torch.cat([start, labels[:, :-1]], 1),
        ).logits[0]
        forced = model.logits(model(batch))[0, : len(written) + 1]
        state = model.init_state(model.encode(batch.source, batch.source_mask, batch.source_segments), 1)
        steps = []
        for token in [BOS, *written]:
            logits, state = model.step(torch.tensor([token]), torch.tensor([0]), state)
            steps.append(logits[0])
    known = [n for n in range(forced.shape[1]) if n not in pair.vocabularies.target.new]
    reference = reference[:, [pair.vocabularies.target.rows[n] for n in known]]
    return max(float((found[:, known] - reference).abs().max()) for found in (forced, torch.stack(steps)))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_theirs(kind: str, pairs: Callable[[str], Pair]) -> None:
    pair = pairs(kind)
    for source, target in zip(*lines(6), strict=True):
        assert compare(pair, pair.ours.model, source, target) < 1e-4


@pytest.mark.parametrize("kind", ["tagged", "nllb"])
def test_segment_recall_begins_as_the_sentence_model(kind: str, pairs: Callable[[str], Pair]) -> None:
    parent = pairs(kind).ours
    model = Transformer(replace(parent.model.config, attention={"name": "segment_recall"}))
    transfer = transfer_weights(parent, model)
    assert not transfer.left
    assert {name.rpartition(".")[2] for name in transfer.new} == {"relative_embedding", "gate_factor", "salience"}
    assert compare(pairs(kind), model.eval(), *(side[0] for side in lines(1))) < 1e-4
    texts = lines(30, seed=9)[0]
    alone = Translator(parent, SEARCH, TAGS[kind]).translate([[text] for text in texts], mode="segment")
    documents = [texts[n : n + 6] for n in range(0, 30, 6)]
    whole = Translator(replace(parent, model=model), SEARCH, TAGS[kind]).translate(documents)
    assert [segment for document in whole for segment in document] == [text for [text] in alone]


def test_shards_and_pickles_hold_the_same(pairs: Callable[[str], Pair], tmp_path: Path) -> None:
    pair = pairs("marian")
    weights = load_file(pair.folder / "model.safetensors")
    wanted = pair.ours.model.state_dict()
    for name in ("bin", "legacy", "shards"):
        shutil.copytree(pair.folder, folder := tmp_path / name)
        (folder / "model.safetensors").unlink()
        if name != "shards":  # torch before 1.6 wrote no zip file, which alone can be mapped
            file = folder / "pytorch_model.bin"
            torch.save(weights, file, _use_new_zipfile_serialization=name == "bin")
        else:
            names = sorted(weights)
            halves = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
            for file, part in halves.items():
                save_file({one: weights[one] for one in part}, folder / file)
            index = {"weight_map": {one: file for file, part in halves.items() for one in part}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        found = load_model(folder).model.state_dict()
        assert all(torch.equal(found[key], tensor) for key, tensor in wanted.items())
        half = load_model(folder, dtype=torch.bfloat16).model.state_dict()
        assert all(torch.equal(half[key], tensor.bfloat16()) for key, tensor in wanted.items())
    (tmp_path / "shards" / "model-2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"the shard model-2\.safetensors is missing"):
        load_model(tmp_path / "shards")
    save_file({"other": torch.zeros(1)}, tmp_path / "shards" / "model-2.safetensors")
    with pytest.raises(
        ValueError, match=r"model-2\.safetensors lacks .*: it is not of model\.safetensors\.index\.json"
    ):
        load_model(tmp_path / "shards")


def test_an_export_of_an_imported_model_is_the_same_model(pairs: Callable[[str], Pair], tmp_path: Path) -> None:
    pair = pairs("tagged")
    export_model(pair.ours, tmp_path / "model")
    again = Translator(load_model(tmp_path / "model"), SEARCH, "fr")
    texts = [[text] for text in lines(5)[0]]
    assert again.translate(texts, mode="segment") == Translator(pair.ours, SEARCH, "fr").translate(
        texts, mode="segment"
    )


def test_tags_are_wanted_and_known(pairs: Callable[[str], Pair]) -> None:
    tagged, both, plain = (load_model(pairs(kind).folder) for kind in ("tagged", "nllb", "marian"))
    with pytest.raises(ValueError, match="the model wants a tag: give tag=, one of es, fr"):
        Translator(tagged).translate([["x"]])
    with pytest.raises(ValueError, match="tag=de: the model knows no such tag: give tag=, one of es, fr"):
        Translator(tagged, tag="de")
    with pytest.raises(ValueError, match=f"give tag=SOURCE-TARGET, two of {', '.join(CODES)}; data.tag= for a corpus$"):
        Translator(both, tag="fra_Latn")
    with pytest.raises(ValueError, match="tag=fr: the model knows no such tag: it has no tags"):
        Translator(plain, tag="fr")
    assert prefixes(plain.source_tokenizer, None) == ([], [])
    requested = Translator(tagged, SEARCH, "es").translate([["x"]], tag="fr", mode="segment")
    assert requested == Translator(tagged, SEARCH, "fr").translate([["x"]], mode="segment")


def test_languages_of_m2m100_stand_in_its_order() -> None:
    module = transformers.models.m2m_100.tokenization_m2m_100
    assert public_vocabularies._M2M100.split() == module.FAIRSEQ_LANGUAGE_CODES["m2m100"]
    assert public_vocabularies._WMT21.split() == module.FAIRSEQ_LANGUAGE_CODES["wmt21"]


def test_files_of_the_hub_are_those_that_are_read(pairs: Callable[[str], Pair]) -> None:
    for kind in KINDS:
        for file in public.read(pairs(kind).folder).files:
            assert any(Path(file.name).match(pattern) for pattern in public.FILES)
