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
    told = [{"target": None if form == "nothing" else form, "where": where} for form, where in forms.items()]
    return {"source": source, "forms": told}


def test_the_forms_of_each_document() -> None:
    rows = [
        row("kernel", núcleo={"a": [1, 2], "b": [4]}, almendra={"a": [3]}, nothing={"a": [5, 5]}),
        row("file", archivo={"b": [1]}),
    ]
    assert forms_by_document(rows) == {"a": {"kernel": {"núcleo": 2, "almendra": 1, None: 2}}, "b": {}}


def test_the_most_frequent_form_is_asked_for_where_it_is_clear() -> None:
    terms: dict[str, dict[str | None, int]] = {
        "in one form": {"a": 3},
        "clear": {"a": 2, "b": 1},
        "missing": {None: 2, "a": 2},
        "once": {"a": 1, "b": 1},
        "scattered": {"a": 2, "b": 1, "c": 1, "d": 1},
        "never": {None: 4},
    }
    assert in_one_form(terms, 0.5) == {"clear": "a", "missing": "a"}
    assert in_one_form(terms, 0.4) == {"clear": "a", "missing": "a", "scattered": "a"}


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
    said = "before: 2 of 5 places (40.0%) in the most frequent form of their document, 0 of 2 terms (0.0%) in one form"
    assert said in capsys.readouterr().out
