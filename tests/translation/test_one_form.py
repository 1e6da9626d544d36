"""The form that a document's terms are asked for, the second translation, and the table of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.translation import one_form
from scaleformer.translation.one_form import choose_forms, in_one_form
from scaleformer.translation.term_forms import Form, WrittenTerm
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, make_run

HERE, OTHER = 0, 1


def term(source: str, **forms: dict[int, int]) -> WrittenTerm:
    """A term with so many places of each form in each document."""
    named: list[tuple[Form, dict[int, int]]] = [(None if form == "nothing" else form, w) for form, w in forms.items()]
    return WrittenTerm(
        source, tuple((f, d, n) for f, where in named for d, count in where.items() for n in range(count))
    )


def test_the_most_frequent_form_is_asked_for_where_it_is_clear() -> None:
    """A document with two places or more, not all in one form: the form that is clear there, else that of all."""
    terms = [
        term("in one form", a={HERE: 3}),
        term("clear", a={HERE: 2}, b={HERE: 1}),
        term("missing", a={HERE: 2}, nothing={HERE: 2}),
        term("scattered", a={HERE: 2}, b={HERE: 1}, c={HERE: 1}, e={HERE: 1}),
        term("never", nothing={HERE: 3}),
        term("clear elsewhere", a={HERE: 1, OTHER: 2}, b={HERE: 1}),
        term("here, not there", a={HERE: 2}, b={HERE: 1, OTHER: 4}),
        term("once", a={HERE: 1}, b={OTHER: 2}),
        term("code inside", **{"a `b` c": {HERE: 3}, "d": {HERE: 1}}),
        term("wide", **{"a  b": {HERE: 2}, "c": {HERE: 1}}),
    ]
    asked = {"wide": "a b", "clear": "a", "missing": "a", "clear elsewhere": "a", "here, not there": "a"}
    assert choose_forms(terms, 3) == [asked, {}, {}]


def test_documents_are_translated_again_with_their_own_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The forms are made up; the search of terms then writes what it asks for, in that document alone, and not in the
    quotation. What is asked for already stays."""
    found = [term("cat", Kater={0: 2, 2: 1}, Katze={0: 1}, nothing={2: 1}), term("tree", Baum={2: 2}, Holz={2: 1})]
    monkeypatch.setattr(one_form, "find_forms", lambda *_: found)
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    sources = [[*DOCUMENTS[0]["source"], 'the "cat" sees'], *(document["source"] for document in DOCUMENTS[1:])]
    names, table = ["a", "b", "c"], tmp_path / "terms.json"
    request = translator.request(sources, names=names, terms=[{}, {}, {"tree": "Tanne"}], languages=("en", "de"))
    first = translator.translate_documents(request)
    same, kept = in_one_form(translator, request, first, str(table), ask=False)
    assert (same, kept) == (request, first)
    assert "2 repeated terms, 62.5% of their places in the most frequent form of" in capsys.readouterr().err
    rows = json.loads(table.read_text(encoding="utf-8"))["terms"]
    assert [row["asked"] for row in rows] == [{}, {}]
    forms = [
        {"target": "Kater", "count": 3, "where": {"a": [1, 2], "c": [1]}},
        {"target": "Katze", "count": 1, "where": {"a": [1]}},
        {"target": None, "count": 1, "where": {"c": [1]}},
    ]
    assert {key: rows[0][key] for key in ("source", "count", "forms")} == {"source": "cat", "count": 5, "forms": forms}

    asked, second = in_one_form(translator, request, first, str(table), ask=True)
    assert asked.asked == [{"cat": "Kater"}, {}, {"cat": "Kater"}]
    assert second[1] == first[1]
    for number in (0, 2):
        wanted = [" cat" in f" {text}" and '"' not in text for text in sources[number]]
        assert any(wanted)
        assert ["Kater" in text for text in second[number].segments] == wanted
    assert ["Tanne" in " ".join(one.segments) for one in second] == ["tree" in " ".join(s) for s in sources[:2]] + [
        True
    ]
    content = json.loads(table.read_text(encoding="utf-8"))
    assert (content["kind"], content["documents"], content["checkpoint"]["sha256"]) == ("terms", 3, translator.sha256)
    told = {"target": "Kater", "left": []}
    assert [row["asked"] for row in content["terms"]] == [{"a": told, "c": told}, {}]
    assert "2 repeated terms, 62.5% of their places (62.5% before) in" in capsys.readouterr().err  # as made up


def test_a_second_round_asks_for_what_the_first_one_wrote_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cat, dog = term("cat", Kater={0: 2}, Katze={0: 1}), term("dog", Hund={0: 2}, Dogge={0: 1})
    changed = term("cat", Katze={0: 2}, Kater={0: 1})
    found = iter([[cat], [changed, dog], [changed, dog, term("tree", Baum={0: 2}, Holz={0: 1})]])
    monkeypatch.setattr(one_form, "find_forms", lambda *_: next(found))
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    request = translator.request([["the cat sees", "a dog", "a tree"], ["a dog"]], names=["a", "b"])
    first = translator.translate_documents(request)
    asked, second = in_one_form(translator, request, first, str(tmp_path / "terms.json"), ask=True)
    assert asked.asked == [{"cat": "Kater", "dog": "Hund"}, {}]  # no third round, and the first choice stays
    assert second[1] == first[1]
    for form, places in (("Kater", [True, False, False]), ("Hund", [False, True, False])):
        assert [form in text for text in second[0].segments] == places


def test_segments_that_still_lack_a_form_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    monkeypatch.setattr(one_form, "find_forms", lambda *_: [term("cat", Kater={0: 2}, Katze={0: 1})])
    request = translator.request([["the cat sees", "a cat"]], names=["a"], fixed=[{1: "eine Katze"}])
    table = tmp_path / "terms.json"
    in_one_form(translator, request, translator.translate_documents(request), str(table), ask=True)
    [row] = json.loads(table.read_text(encoding="utf-8"))["terms"]
    assert row["asked"] == {"a": {"target": "Kater", "left": [2]}}
