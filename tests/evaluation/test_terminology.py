"""Which terms are requested, and how their use is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaleformer.evaluation.terminology import RequiredTerm, find_required, score_terms, two_ways
from scaleformer.text.documents import Document
from scaleformer.text.terms import Term
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, make_run

WAYS = {"house": ("haus", "bude"), "dog": ("hund", "kläffer")}


def test_two_translations_differ_by_more_than_an_ending() -> None:
    pairs = [("bird house", "vogel haus"), ("bird house", "vogel bude"), ("tree bird", "baum vogel")] * 20
    pairs += [("road tree", "weg baum"), ("roads tree", "wege baum"), ("road", "wege"), ("road", "weg")] * 20
    documents = [Document("a", tuple(s for s, _ in pairs), tuple(t for _, t in pairs))]
    assert {word: set(ways) for word, ways in two_ways(documents).items()} == {"house": {"haus", "bude"}}


def test_each_word_is_requested_once_per_window() -> None:
    source = ("a house", "x", "the house", "y", "a dog", "houses", "z")
    target = ("ein haus", "x", "die bude", "y", "ein tier", "haus", "z")
    documents = [Document("a", source, target), Document("b", ("a dog",), ("ein hund",))]
    found = find_required(documents, WAYS, 20, "reference", around=1)
    assert [(one.source[one.segment], one.term.target) for one in found] == [
        ("a house", "haus"),
        ("the house", "bude"),
        ("a dog", "hund"),
    ]
    assert found[0].source == ("a house", "x")
    assert found[1].target == ("die bude", "y")
    other = find_required(documents, WAYS, 20, "other", around=1)
    assert [one.term.target for one in other] == ["bude", "haus", "kläffer"]
    assert len(find_required(documents, WAYS, 2, "other", around=1)) == 2
    assert [one.term.source for one in find_required(documents, WAYS, 10, "other", around=1)] == ["house", "dog"]


def test_terms_are_counted_without_and_with(tmp_path: Path) -> None:
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    windows = [(tuple(d["source"]), tuple(d["target"])) for d in DOCUMENTS]
    required = [RequiredTerm(*windows[0], 0, Term("cat", "Kater")), RequiredTerm(*windows[2], 1, Term("tree", "Baum"))]
    score = score_terms(translator, required, translator.decoding)
    assert (score.terms, score.words, score.others, score.changed) == (2, 2, 3, 0)
    assert (score.before, score.after, score.inflected) == (0.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="translates in two ways"):
        score_terms(translator, [], translator.decoding)
