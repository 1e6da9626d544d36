"""The form that a document's terms are asked for, and what the two translations are said to have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import one_form
from scripts.one_form import forms_by_document, in_one_form, main
from tests.runs import DOCUMENTS, make_run, write_corpus


def row(source: str, **forms: dict[str, list[int]]) -> dict[str, Any]:
    told = [
        {"target": None if form == "nothing" else form, "count": sum(map(len, where.values())), "where": where}
        for form, where in forms.items()
    ]
    return {"source": source, "forms": told}


def test_the_forms_of_each_document() -> None:
    rows = [
        row("kernel", núcleo={"a": [1, 2], "b": [4]}, almendra={"a": [3]}, nothing={"a": [5, 5]}),
        row("file", archivo={"b": [1]}),
    ]
    assert forms_by_document(rows) == {"a": {"kernel": {"núcleo": 2, "almendra": 1, None: 2}}, "b": {}}


def test_the_most_frequent_form_is_asked_for_where_it_is_clear() -> None:
    """A document with two places or more, not all in one form: the form that is clear there, else that of all."""
    rows = [
        row("in one form", a={"d": [1, 2, 3]}),
        row("clear", a={"d": [1, 1]}, b={"d": [2]}),
        row("missing", a={"d": [1, 2]}, nothing={"d": [3, 4]}),
        row("scattered", a={"d": [1, 2]}, b={"d": [3]}, c={"d": [4]}, e={"d": [5]}),
        row("never", nothing={"d": [1, 2, 3]}),
        row("clear elsewhere", a={"d": [1], "other": [1, 2]}, b={"d": [2]}),
        row("here, not there", a={"d": [1, 2]}, b={"d": [3], "other": [1, 2, 3, 4]}),
        row("once", a={"d": [1]}, b={"other": [1, 2]}),
    ]
    asked = {"clear": "a", "missing": "a", "clear elsewhere": "a", "here, not there": "a"}
    assert in_one_form(rows, 0.5) == {"d": asked, "other": {}}
    assert in_one_form(rows, 0.4)["d"] == {**asked, "scattered": "a"}
    assert in_one_form(rows, 0.7)["d"] == {"clear elsewhere": "a", "here, not there": "b"}


def test_documents_are_translated_again_with_their_own_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report is made up; the search of terms then writes what it asks for, in that document alone."""
    rows = [row("cat", Kater={"north/one": [1, 1]}, Katze={"north/one": [1]}, nothing={"north/three": [3, 3]})]
    monkeypatch.setattr(one_form, "term_report", lambda *_: rows)
    source, output = write_corpus(tmp_path, documents=DOCUMENTS) / "test.jsonl", tmp_path / "out.jsonl"
    main([str(make_run(tmp_path / "run")), str(source), str(output), "--languages", "en", "de"])
    found = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [record["terms"] for record in found] == [{"cat": "Kater"}, {}, {}]
    assert ["Kater" in " ".join(record["target"]) for record in found] == [True, False, False]
    said = capsys.readouterr().out
    assert said.startswith(
        "before:\n  repeated: 2 terms, 2 of 5 places (40.0%) in the most frequent form of their document\n"
        "  asked for: 1 terms, 2 of 3 places (66.7%) in the most frequent form of their document\n  d-BLEU "
    )
