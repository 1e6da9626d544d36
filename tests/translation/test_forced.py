"""Given parts of translations: with a real model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.system.errors import DataError
from scaleformer.translation.forced import ForcedTexts, read_forced
from scaleformer.translation.log_probabilities import score_documents
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS, SEP
from tests.copier import CopyModel
from tests.runs import DOCUMENTS, make_run
from tests.search import batch


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("told") / "run"), "cpu")


SOURCE = [document["source"] for document in DOCUMENTS]


@pytest.mark.parametrize("strategy", ["greedy", "sample"])
def test_a_model_told_its_own_words_writes_the_same(translator, strategy):
    """All segments but one, all beginnings, or everything, in the tokens of the model's own output."""
    config = DecodingConfig(strategy=strategy, max_length_ratio=0.5, merge_segments=False)
    vocabulary = translator.source_tokenizer
    sources = batch(*([*vocabulary.encode_segments(segments), EOS] for segments in SOURCE))
    found = [one.tokens for [one] in decode(translator.model, *sources, config)]
    own: list[dict[int, list[int]]] = []
    for tokens in found:
        parts: dict[int, list[int]] = {}
        for token in tokens:
            parts.setdefault(sum(map(SEP.__eq__, itertools.chain(*parts.values()))), []).append(token)
        own.append(parts)
    some = [{n: part for n, part in parts.items() if n != 1} for parts in own]
    begun = [{n: part[:2] for n, part in parts.items()} for parts in own]
    for told in (own, some, begun):
        again = decode(translator.model, *sources, config, forced=told)
        assert [one.tokens for [one] in again] == found


@pytest.mark.parametrize("settings", [{"mode": "segment"}, {"max_tokens": 12}], ids=str)
def test_pieces_of_a_document_are_told_their_own(translator, settings):
    found = translator.translate(
        SOURCE, fixed=[{0: "eins"}, {}, {2: "zwei"}], begin=[{1: "x"}, {0: "y"}, {}], **settings
    )
    assert (found[0][0], found[2][2]) == ("eins", "zwei")
    assert (found[0][1][0], found[1][0][0]) == ("x", "y")


def test_a_document_that_is_all_fixed_has_the_probability_of_its_text(translator):
    targets = [document["target"] for document in DOCUMENTS]
    fixed = [dict(enumerate(target)) for target in targets]
    for settings in ({}, {"strategy": "beam", "beam_size": 3}, {"strategy": "sample", "n_best": 2}):
        found = translator.translate_documents(translator.request(SOURCE, fixed=fixed, cache="none", **settings))
        for one, target, score in zip(found, targets, score_documents(translator, SOURCE, targets), strict=True):
            assert list(one.segments) == target
            assert one.finished
            assert one.hypotheses[0].log_probability == pytest.approx(score.log_probability, rel=1e-4)


def test_a_fixed_text_comes_out_as_it_is():
    """Also with characters that the vocabulary lacks, and for a document without text."""
    texts = [text for d in DOCUMENTS for side in ("source", "target") for text in d[side]]
    bare = Tokenizer.train(texts, 45, byte_fallback=False)
    loaded = LoadedModel(CopyModel(bare.vocab_size), bare, bare, {}, "0" * 64, Path("copier"))  # type: ignore[arg-type]
    copier = Translator(loaded, DecodingConfig(strategy="greedy"))
    text = " Łódź,\t〈x〉\n  twice  "
    found = copier.translate([["the cat", "sees"], [" ", ""]], fixed=[{1: text}, {0: text}])
    assert [one[n] for one, n in zip(found, (1, 0), strict=True)] == [text, text]
    [[begun, _]] = copier.translate([["the cat", "sees"]], begin=[{0: "Łó"}])
    assert begun.startswith("Łó")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fixed": [{}]}, "fixed has 1 entries for 3 documents: wanted one for each"),
        (
            {"fixed": [{}, {1: "x"}, {}]},
            r"document 1: fixed\[1\]: no such source segment: there are 1, numbered from 0",
        ),
        ({"begin": {0: "x", 1: "y", 2: "z"}}, "begin has no texts by segment: wanted for each document as in {12: "),
        ({"begin": [{}, {}, {0: 7}]}, r"document 2: begin\[0\] is int, wanted a string"),
        ({"fixed": [{0: "x"}, {}, {}], "begin": [{0: "y"}, {}, {}]}, "segment 0 is in both fixed and begin"),
        ({"fixed": [{0: "x"}, {}, {}], "match_segments": False}, "set decoding.match_segments=true"),
    ],
    ids=["documents", "no such segment", "no list", "no text", "both", "match_segments"],
)
def test_what_cannot_be_told_is_one_line(translator, settings: dict[str, Any], message):
    with pytest.raises(ValueError, match=message):
        translator.translate_documents(translator.request(SOURCE, **settings))


def test_json_lines_tell():
    assert not read_forced({"source": ["a"]}, "in.jsonl:1", 1)
    record = {"source": ["a"] * 13, "fixed": {"12": "text"}, "begin": {"3": "El"}}
    assert read_forced(record, "in.jsonl:1", 13) == ForcedTexts({12: "text"}, {3: "El"})
    known = {"source": ["a"], "known": [["b", "c"], ["d", ""]]}
    assert read_forced(known, "in.jsonl:1", 1) == ForcedTexts({}, {}, (("b", "c"), ("d", "")))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"fixed": ["x"]}, r"in.jsonl:7: 'fixed' is list, wanted an object of texts"),
        ({"fixed": {"2": "x"}}, r"in.jsonl:7: fixed\[2\]: no such source segment: there are 2, numbered from 0"),
        ({"begin": {"-1": "x"}}, r"in.jsonl:7: begin\['-1'\]: no such source segment"),
        ({"fixed": {"1": "x", "01": "y"}}, r"in.jsonl:7: 'fixed' has a segment twice, with and without zeros"),
        ({"begin": {"1": None}}, r"in.jsonl:7: begin\[1\] is NoneType, wanted a string"),
        ({"known": [["a"]]}, r"in.jsonl:7: 'known' is \[\['a'\]\], wanted a list of \[source, translation\]"),
        ({"known": {"a": "b"}}, r"in.jsonl:7: 'known' is \{'a': 'b'\}, wanted a list"),
        ({"begin": {"1": "\ud800"}}, r"in.jsonl:7: begin\[1\] has a lone surrogate"),
        ({"known": [["a", "b"], ["\ud800", "c"]]}, r"in.jsonl:7: known has a lone surrogate"),
    ],
    ids=["list", "beyond", "before", "twice", "none", "known", "known by source", "surrogate", "known surrogate"],
)
def test_what_json_lines_cannot_tell_is_one_line(record, message):
    with pytest.raises(DataError, match=message):
        read_forced(record, "in.jsonl:7", 2)
