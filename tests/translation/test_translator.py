"""Documents through the translator: with a fake model that copies, and with an untrained one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import scaleformer
from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.config import DecodingConfig
from scaleformer.system.devices import resolve_device
from scaleformer.translation.request import Listener
from scaleformer.translation.translator import Precision, Translator
from tests.copier import CopyModel
from tests.runs import DOCUMENTS, tokenizer

GREEDY = DecodingConfig(strategy="greedy")


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("text", "documents is str"),
        (["text"], "document 0 is str"),
        ([["a"], [1]], "segment 0 of document 1 is int"),
        ([["a"], None], "document 1 is NoneType"),
    ],
    ids=["text", "list of text", "number", "none"],
)
def test_what_is_no_list_of_documents_is_named(copier, documents, message):
    with pytest.raises(ValueError, match=message):
        copier.translate(documents)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "page"}, "mode is 'page': it must be one of document, segment"),
        ({"max_tokens": 2}, "at least 3"),
        (
            {"mode": "segment", "max_tokens": 20},
            "max_tokens=20 is for documents, mode=segment for segments: set only one",
        ),
    ],
    ids=["mode", "max_tokens", "both"],
)
def test_wrong_arguments_are_named(copier, settings, message):
    with pytest.raises(ValueError, match=message):
        copier.translate_documents(copier.request([["a"]], **settings))


def test_unknown_decoding_settings_are_named(copier):
    with pytest.raises(ValueError, match=r"decoding\.beams: no such setting"):
        copier.translate([["a"]], beams=2)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="device=nowhere: not available here"):
        resolve_device("nowhere")
    assert resolve_device("cpu").type == "cpu"


def test_a_run_translates_with_its_own_settings(run):
    translator = scaleformer.Translator.load(run, device="cpu")
    assert translator.decoding == DecodingConfig(strategy="greedy", max_length_ratio=0.2, max_length_offset=3)
    documents = [document["source"] for document in DOCUMENTS]
    translated = translator.translate(documents)
    assert len(translated) == len(documents)
    assert translated == translator.translate(documents)
    assert [translator.translate([document])[0] for document in documents] == translated


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_a_real_model_can_be_made_to_match_the_segments(run, strategy):
    documents = [document["source"] for document in DOCUMENTS]
    translated = Translator.load(run).translate(
        documents, strategy=strategy, match_segments=True, **({"beam_size": 3} if strategy == "beam" else {})
    )
    assert [len(document) for document in translated] == [len(document) for document in documents]


def test_a_translator_is_made_of_a_path_and_says_what_it_is(run):
    translator = scaleformer.Translator(str(run))
    assert repr(translator).startswith(f"Translator('{run}/checkpoints/best.ckpt', ")
    assert "strategy='greedy'" in repr(translator)
    documents = [document["source"] for document in DOCUMENTS]
    for settings in ({"mode": "segment"}, {"max_tokens": 12}):
        expected = translator.translate_documents(translator.request(documents, **settings))
        assert translator.translate(documents, **settings) == [list(t.segments) for t in expected]


def test_the_package_exports_what_a_user_needs():
    assert scaleformer.DecodingConfig is DecodingConfig
    for name in scaleformer.__all__:
        assert getattr(scaleformer, name)


def test_a_document_more_leaves_the_samples_of_others(run):
    translator = Translator.load(run, "cpu")
    documents, settings = [d["source"] for d in DOCUMENTS], {"strategy": "sample", "max_length_offset": 9, "seed": 3}
    found = translator.translate(documents, **settings)
    assert translator.translate([*documents, ["one more", "of a few words"]], **settings)[:-1] == found
    ids = [d["id"] for d in DOCUMENTS]
    named = translator.translate_documents(translator.request(documents, names=ids, **settings))
    assert [
        t.segments for t in translator.translate_documents(translator.request(documents[1:], names=ids[1:], **settings))
    ] == [t.segments for t in named[1:]]


def test_a_long_document_is_shown_on_its_way(copier):
    shares: list[float] = []
    copier.translate_documents(
        copier.request([["a b"] * 20]), Listener(progress=lambda share, tokens: shares.append(share))
    )
    assert shares == sorted(shares)
    assert any(0.4 < share < 0.6 for share in shares)


def test_importing_the_package_does_not_import_the_translator():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = scaleformer.nothing
    assert scaleformer.__version__


def tagged(data: dict[str, Any] | None) -> Translator:
    """A copier whose vocabulary has tags, from a run with this `data` group."""
    texts = [text for d in DOCUMENTS for side in ("source", "target") for text in d[side]]
    tokenizer = Tokenizer.train(texts, 304, tags=("2es", "2de"))
    model = CopyModel(tokenizer.vocab_size)
    return Translator(LoadedModel(model, tokenizer, tokenizer, {"data": data}, "0" * 64, Path("copier")), GREEDY)  # type: ignore[arg-type]


def test_a_tag_stands_before_every_source_that_the_model_reads():
    translator = tagged({"corpora": {"a": {"tag": "2es"}, "b": {}}})
    documents = [["a b", "c"], ["the cat sees"]]
    assert translator.translate(documents) == documents  # one corpus has none
    (plain,) = translator.model.batches
    translator.model.batches.clear()
    assert translator.translate(documents, tag="2de") == documents
    assert translator.model.batches == [tuple(length + 1 for length in plain)]
    translator.model.batches.clear()
    translator.translate(documents, tag="<2de>", mode="segment")
    assert sum(map(len, translator.model.batches)) == 3
    for tag, pieces in ((None, 1), ("2de", 2)):  # a source that just fits is cut if a tag precedes it
        translator.model.batches.clear()
        assert translator.translate(documents[:1], tag=tag, max_tokens=min(plain)) == documents[:1]
        assert sum(map(len, translator.model.batches)) == pieces


def test_unknown_and_missing_tags_are_refused():
    for data in ({"tag": "2es"}, {"corpora": {"a": {"tag": "2es"}, "b": {"tag": "2de"}}}):
        with pytest.raises(ValueError, match=r"had a tag: give tag=, one of 2es, 2de; data.tag= for a corpus$"):
            tagged(data).translate([["a"]])
    with pytest.raises(ValueError, match=r"tag='x': the model knows no such tag; it knows 2es, 2de$"):
        tagged({"tag": "2es"}).translate([["a"]], tag="x")
    without = LoadedModel(CopyModel(302), tokenizer(), tokenizer(), {}, "0" * 64, Path("copier"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tag='x': the model knows no such tag; it was trained without tags$"):
        Translator(without, tag="x")


@pytest.mark.parametrize(("precision", "mode"), [("int8", "document"), ("int8", "segment"), ("bf16", "document")])
def test_int8_and_bf16_decode_nearly_as_fp32(run: Path, precision: Precision, mode: str) -> None:
    """The probabilities that both give to the same text; their own outputs may differ."""
    exact, rounded = Translator.load(run, "cpu"), Translator.load(run, "cpu", precision=precision)
    assert (exact.precision, rounded.precision) == ("fp32", precision)
    source, mask = torch.tensor([[9, 10, 4, 11, 4, 3]]), torch.ones(1, 6, dtype=torch.bool)
    segments = torch.tensor([[0, 0, 0, 1, 1, 2]])
    logits = []
    for model in (exact.model, rounded.model):
        state, steps = model.init_state(model.encode(source, mask, segments), 2), []
        for token, segment in ((2, 0), (9, 0), (4, 1), (12, 1)):
            tokens, numbers = torch.tensor([token, token]), torch.tensor([segment, segment])
            step, state = model.step(tokens, numbers, state)
            steps.append(step)
        logits.append(torch.stack(steps).log_softmax(-1))
    assert not torch.equal(*logits)
    torch.testing.assert_close(*logits, atol=0.1, rtol=0.0)
    assert len(rounded.translate([["a b", "c"]], mode=mode)[0]) == 2


def test_an_unknown_precision_is_refused(run: Path) -> None:
    with pytest.raises(ValueError, match="precision is 'int4': it must be one of fp32, bf16, int8"):
        Translator.load(run, precision="int4")


@pytest.mark.parametrize(
    ("tag", "own", "corpus", "language"),
    [
        (None, None, "es", "es"),
        (None, "2de", "es", "de"),
        ("2pt-BR", "2de", None, "pt-BR"),
        (None, None, "tgt", ""),
        ("formal", None, "fil", "fil"),
        (None, None, None, ""),
    ],
)
def test_the_language_that_it_writes(tag: str | None, own: str | None, corpus: str | None, language: str) -> None:
    translator: Any = SimpleNamespace(tag=own, segmentation={"target_language": corpus})
    assert Translator.target_language(translator, tag) == language
