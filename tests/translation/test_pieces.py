"""Documents in pieces and batches, with a model that copies: what is batched together, and the output order."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.translation import pieces
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.request import Listener
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS, SEP
from tests.runs import DOCUMENTS, tokenizer

GREEDY = DecodingConfig(strategy="greedy")


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
@pytest.mark.parametrize("batch_tokens", [1, 60, 10_000])
def test_order_is_kept_whatever_the_batches(copier, strategy, batch_tokens):
    documents = [["a b", "c"], ["a much longer segment than the others"], [""], ["x"], ["one", "two", "three"], []]
    assert (
        copier.translate(
            documents, strategy=strategy, batch_tokens=batch_tokens, **({"beam_size": 2} if strategy == "beam" else {})
        )
        == documents
    )


def test_batches_hold_like_lengths_within_the_budget(copier):
    documents = [["word " * n] for n in (1, 9, 2, 8, 3, 7)]
    copier.translate(documents, batch_tokens=120)
    assert all(list(batch) == sorted(batch, reverse=True) for batch in copier.model.batches)
    assert len(copier.model.batches) < len(documents)
    assert all(len(batch) == 1 or len(batch) * max(batch) <= 120 for batch in copier.model.batches)
    copier.model.batches.clear()
    copier.translate(documents, batch_tokens=120, strategy="beam", beam_size=2)
    assert all(len(batch) == 1 or len(batch) * max(batch) * 2 <= 120 for batch in copier.model.batches)


@pytest.mark.parametrize(
    "document",
    [["one"], [""], ["   "], [], ["", "  ", ""], ["a", "", "b"], ["🙂 👩‍👩‍👧"], ["<sep> </s>"], ["tab\tand\nline"]],
    ids=repr,
)
@pytest.mark.parametrize("mode", ["document", "segment"])
def test_odd_documents_do_not_fail(copier, document, mode):
    [translation] = copier.translate_documents(copier.request([document], mode=mode))
    assert translation.finished
    assert translation.source_segments == len(translation.segments) == len(document)
    if any(segment.strip() for segment in document):
        assert list(translation.segments) == document
    else:
        assert copier.model.batches == []


def test_bytes_that_make_no_character_are_counted_and_told(copier, caplog, monkeypatch):
    tokens = tokenizer().encode("\U0001f642")
    monkeypatch.setattr(PieceTranslator, "source_tokens", lambda self, segments: [*tokens[:-1], SEP, EOS])
    [found] = copier.translate_documents(copier.request([["\U0001f642"]], names=["a"]))
    assert "\ufffd" not in found.segments[0]
    assert found.hypotheses[0].broken == 1
    assert "1 character left out, of which the model wrote only some of the bytes: a (1)" in caplog.text


def test_pieces_are_cut_between_segments_and_joined_again(copier):
    document = ["one two", "three", "a segment that is longer than any piece may be", "four", "five"]
    lengths = [len(tokenizer().encode_segments([segment])) for segment in document]
    limit = lengths[0] + lengths[1] + 1
    [translation] = copier.translate_documents(copier.request([document], max_tokens=limit))
    assert list(translation.segments) == document
    pieces = sorted(length for batch in copier.model.batches for length in batch)
    assert sum(pieces) == sum(lengths) + len(pieces)
    assert limit in pieces
    assert [length for length in pieces if length > limit] == [lengths[2] + 1]
    assert translation.source_tokens == sum(pieces)


def test_by_segment_keeps_the_number_of_segments(run):
    translator = Translator.load(run, "cpu")
    documents = [document["source"] for document in DOCUMENTS]
    for translation, document in zip(
        translator.translate_documents(translator.request(documents, mode="segment")), documents, strict=True
    ):
        assert len(translation.segments) == len(document)


def test_documents_at_the_limit_are_reported(copier, caplog):
    with caplog.at_level(logging.WARNING):
        translations = copier.translate_documents(
            copier.request(
                [["a long document of many words"], ["x"]],
                DecodingConfig(strategy="greedy", max_length_ratio=0.0, max_length_offset=5),
                names=["first", "second"],
            )
        )
    assert [t.finished for t in translations] == [False, True]
    assert [t.cut for t in translations] == [(0,), ()]
    assert "1 of 2 documents hit the length limit and are cut in 1 segment (" in caplog.text
    assert "first" in caplog.text
    assert "second" not in caplog.text


def test_n_best(copier):
    [translation] = copier.translate_documents(copier.request([["a b"]], DecodingConfig(beam_size=4, n_best=3)))
    assert len(translation.hypotheses) == 3
    assert translation.segments == ("a b",)
    assert [translation] == copier.translate_documents(
        copier.request([["a b"]], strategy="beam", beam_size=4, n_best=3)
    )
    with pytest.raises(ValueError, match="n_best=3"):
        copier.translate_documents(copier.request([["a b"]], DecodingConfig(beam_size=4, n_best=3), mode="segment"))
    with pytest.raises(ValueError, match="n_best=3: translate returns only the best: call translate_documents for all"):
        copier.translate([["a b"]], strategy="beam", beam_size=4, n_best=3)


def test_progress_ends_at_all_of_it(copier):
    calls: list[tuple[float, int]] = []
    copier.translate_documents(
        copier.request([["a b"], ["c"], [""]]), Listener(progress=lambda *numbers: calls.append(numbers))
    )
    shares, tokens = zip(*calls, strict=True)
    assert list(shares) == sorted(shares)
    assert shares[-1] == 1.0
    # everything written and one </s> each; a document that ends earlier stays until its batch is compacted
    written = [len(tokenizer().encode_segments([text])) + 1 for text in ("a b", "c")]
    assert tokens[-1] == sum(written)


def test_fixed_segments_fill_the_cache_of_their_document(run, monkeypatch):
    """All pieces of the document have it, no other document, and nothing without fixed segments or with cache=none."""
    translator = Translator.load(run, "cpu")
    documents = [["one two", "three", "", "four five"], ["six", "seven"], ["one two", "eight"]]
    fixed = [{0: "eins zwei", 2: "", 3: " "}, {}, {1: "acht"}]
    settings = {"max_length_ratio": 1.0, "max_length_offset": 4}
    told = []
    read = PieceTranslator._cache

    def watched(self, known):
        if known and known not in told:
            told.append(known)
        return read(self, known)

    monkeypatch.setattr(PieceTranslator, "_cache", watched)
    for how in ({}, {"mode": "segment"}, {"max_tokens": 12}):
        found = translator.translate(documents, fixed=fixed, **settings, **how)
        assert told == [(("one two", "eins zwei"),), (("eight", "acht"),)]
        assert found[1:2] == translator.translate(documents[1:2], **settings, **how)
        for n in range(3):
            assert translator.translate(documents[n : n + 1], fixed=fixed[n : n + 1], **settings, **how) == [found[n]]
        told.clear()
        settled = translator.request(documents[1:2], **settings, **how)
        settled = replace(settled, forced=[ForcedTexts(known=(("one two", "eins zwei"), ("x", "")))])
        assert translator.translate_documents(settled)[0].segments != tuple(found[1])
        assert told == [(("one two", "eins zwei"),)]
        told.clear()
        without = translator.translate(documents, fixed=fixed, cache="none", **settings, **how)
        assert told == []
        assert without != found
        assert [one[n] for one, n in ((without[0], 0), (without[2], 1))] == ["eins zwei", "acht"]


def test_caches_may_be_dropped_and_read_again(run, monkeypatch):
    translator = Translator.load(run, "cpu")
    documents, fixed = [["one two", "three"], ["six", "seven"]] * 2, [{0: "eins zwei"}, {1: "sieben"}] * 2
    settings = {"fixed": fixed, "mode": "segment", "max_length_ratio": 1.0, "max_length_offset": 4, "batch_tokens": 6}
    expected = translator.translate(documents, **settings)
    monkeypatch.setattr("scaleformer.translation.pieces.CACHED", 0)
    assert translator.translate(documents, **settings) == expected


def test_caches_that_do_not_fit_together_are_read_once(run, monkeypatch):
    """Though segments of like length are translated together, whatever their documents."""
    translator, reads, read = Translator.load(run, "cpu"), [], pieces.read_cache
    monkeypatch.setattr(pieces, "read_cache", lambda *what: reads.append(1) or read(*what))
    documents = [["one two", "three", "four five six", "seven"]] * 4
    fixed = [{0: text} for text in ("eins zwei drei", "zwei eins drei", "drei eins zwei", "drei zwei eins")]
    settings = {"fixed": fixed, "mode": "segment", "max_length_ratio": 1.0, "max_length_offset": 4, "batch_tokens": 30}
    expected = translator.translate(documents, **settings)
    assert len(reads) == 4
    reads.clear()
    monkeypatch.setattr(pieces, "CACHED", 5)
    assert translator.translate(documents, **settings) == expected
    assert len(reads) == 4


@pytest.mark.parametrize("most", ["LONGEST", "most_source_tokens"])
def test_known_translations_that_are_too_long_are_left_out_and_counted(run, monkeypatch, most):
    translator = Translator.load(run, "cpu")
    documents, settings = [["one two", "three"]], {"max_length_ratio": 1.0, "max_length_offset": 4}
    short, long = ("one", "eins"), ("a b c d e f g h i j k", "zwei drei vier fünf")
    what = (), (short,), (short, long)
    usual, one, both = (translator.request(documents, **settings, forced=[ForcedTexts(known=some)]) for some in what)
    monkeypatch.setattr(*((pieces, most) if most == "LONGEST" else (type(translator.model), most)), 16)
    expected = translator.translate_documents(one)
    assert expected != translator.translate_documents(usual)
    with pytest.warns(UserWarning, match="1 known translation of more than 16 tokens cannot help the rest"):
        assert translator.translate_documents(both) == expected
    alone = translator.request(documents, **settings, forced=[ForcedTexts(known=(long,))])
    with pytest.warns(UserWarning, match="1 known translation of more than 16 tokens"):
        assert translator.translate_documents(alone) == translator.translate_documents(usual)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_drafts_and_a_cache_agree(run, precision):
    translator = Translator.load(run, "cpu", precision=precision)
    documents, fixed = [["one two", "three", "four five six", "seven"]], [{1: "drei"}]
    settings = {"fixed": fixed, "strategy": "greedy", "max_length_ratio": 1.0, "max_length_offset": 4}
    expected = translator.translate(documents, draft="none", **settings)
    assert translator.translate(documents, draft="segments", **settings) == expected
    beams = translator.translate(documents, **{**settings, "strategy": "beam"}, beam_size=2)
    assert beams[0][1] == "drei"
