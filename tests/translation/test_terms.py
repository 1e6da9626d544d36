"""Terms in translations: which are wanted, which are missing, and how they are inserted."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from scaleformer.system.errors import DataError
from scaleformer.text.terms import Term
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.pieces import Piece, PieceTranslator
from scaleformer.translation.request import Listener
from scaleformer.translation.terms import missing_from, read_terms_of, requirements
from scaleformer.translation.translations import DocumentHypothesis
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, make_run

SOURCES = [document["source"] for document in DOCUMENTS]
CAT, DOG, PET = Term("cat", "Kater"), Term("dog", "Hund"), Term("pet", "Kater")


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("terms") / "run"), "cpu")


def test_terms_are_asked_of_the_segment_that_translates_their_sources() -> None:
    """Two forms of one target form count as one; what is translated together with the one before is asked for there."""
    hypothesis = DocumentHypothesis(("a", "b", "", "c"), 0.0, 0.0, True, (2,))
    segments = ["a cat, cats, a pet", "no", "dogs and a cat", "dog-cat", "cut off"]
    asked = requirements(segments, hypothesis, [CAT, DOG, PET])
    assert asked == [
        (0, 1, Counter({CAT: 3})),
        (1, 3, Counter({DOG: 1, CAT: 1})),
        (3, 4, Counter({DOG: 1, CAT: 1})),
    ]


def test_a_form_is_missing_as_often_as_it_stands_less() -> None:
    wanted = Counter({CAT: 2, DOG: 1})
    assert missing_from("ein Kater und Hunde", wanted) == Counter({CAT: 1})
    assert missing_from("der kater, Katers, hund", wanted) == Counter()
    assert missing_from("", wanted) == wanted


@pytest.mark.parametrize("settings", [{}, {"mode": "segment"}, {"max_tokens": 12}, {"beam_size": 2}], ids=str)
def test_segments_that_lack_a_term_get_it_and_others_stay(translator: Translator, settings: dict[str, Any]) -> None:
    if "beam_size" in settings:
        settings = {**settings, "strategy": "beam"}
    terms = {"cat": "Kater", "tree": "Baum"}
    usual = translator.translate_documents(translator.request(SOURCES, **settings))
    found = translator.translate_documents(translator.request(SOURCES, terms=terms, **settings))
    for segments, before, after in zip(SOURCES, usual, found, strict=True):
        for segment, old, new in zip(segments, before.segments, after.segments, strict=True):
            wanted = [target for source, target in terms.items() if source in segment]
            assert [target for target in wanted if target.lower() in new.lower()] == wanted
            if not wanted:
                assert new == old
        if before.segments == after.segments:
            assert before == after
    assert found[0].segments != usual[0].segments
    assert found[1] == usual[1]


def test_a_mended_translation_has_its_own_probability(translator: Translator) -> None:
    [found] = translator.translate_documents(translator.request(SOURCES[:1], terms={"cat": "Kater"}))
    fixed = [dict(enumerate(found.segments))]
    [given] = translator.translate_documents(translator.request(SOURCES[:1], fixed=fixed, cache="none"))
    assert found.hypotheses[0].log_probability == pytest.approx(given.hypotheses[0].log_probability, rel=1e-4)
    known = [ForcedTexts(known=(("the dog", "der hund"),))]
    [other] = translator.translate_documents(translator.request(SOURCES[:1], terms={"cat": "Kater"}, forced=known))
    piece = Piece(SOURCES[0], "", ForcedTexts(dict(enumerate(other.segments))), known=known[0].known)
    [given] = PieceTranslator(translator, translator.decoding).translate([piece])
    assert other.hypotheses[0].log_probability == pytest.approx(given.hypotheses[0].log_probability, rel=1e-4)
    assert other.hypotheses[0].log_probability != pytest.approx(found.hypotheses[0].log_probability, rel=1e-3)


def test_what_is_told_stays_and_is_named(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = translator.translate(
            SOURCES, terms=[{"cat": "Kater"}, {}, {"tree": "Baum"}], fixed=[{0: "fest"}, {}, {}],
            begin=[{}, {}, {1: "ein"}],
        )  # fmt: skip
    assert found[0][0] == "fest"
    assert found[2][1].startswith("ein")
    assert "baum" in found[2][1].lower()
    assert "1 of 2 terms could not be placed: document 0, segment 1 (Kater)" in caplog.text


def test_the_order_is_kept_whatever_is_held(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = translator.translate(SOURCES * 2, terms={"cat": "Kater"})
    monkeypatch.setattr("scaleformer.translation.term_search.HELD", 1)
    finished: list[list[str]] = []
    found = translator.translate_documents(
        translator.request(SOURCES * 2, terms={"cat": "Kater"}, batch_tokens=20),
        Listener(finished=lambda one: finished.append(list(one.segments))),
    )
    assert [list(one.segments) for one in found] == finished
    assert [[s for s in one if "kater" in s.lower()] != [] for one in finished] == [True, False, True] * 2
    assert len(expected) == len(finished)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"terms": [{}]}, "terms has 1 entries for 3 documents: wanted one for each"),
        ({"terms": {"cat": ""}}, "the target form '' of a term is not text"),
        ({"terms": {"cat": "x"}, "match_segments": False}, "set decoding.match_segments=true"),
        ({"terms": {"cat": "x"}, "strategy": "beam", "n_best": 2}, "n_best=2: terms are enforced in one translation"),
    ],
)
def test_what_cannot_be_asked_is_one_line(translator: Translator, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translator.translate_documents(translator.request(SOURCES, **settings))


def test_json_lines_have_terms_of_their_own() -> None:
    assert read_terms_of({"source": ["a"]}, "in.jsonl:1") == {}
    record = {"source": ["a"], "terms": {"cat": "Kater"}}
    assert read_terms_of(record, "in.jsonl:1") == {"cat": "Kater"}


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (["x"], "in.jsonl:7: 'terms' is list, wanted an object of target forms"),
        ({"x": 3}, "in.jsonl:7: the target form 3 of a term is not text"),
    ],
)
def test_what_json_lines_cannot_ask_is_one_line(terms: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_terms_of({"terms": terms}, "in.jsonl:7")
