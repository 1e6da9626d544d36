"""The table of repeated terms: which words are terms, what was written for them, and the summary; by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scaleformer.translation.request import Request
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.word_alignments import Links
from scripts.term_report import main, summary, term_report
from tests.copier import GREEDY, make_copier
from tests.runs import DOCUMENTS, make_run, write_corpus

KERNEL = ["el núcleo x"] * 8 + ["los Núcleos x", "la almendra x", "la almendra x", "nada"]
OTHERS = [("see nothing", "el vacío")] * 6 + [("see nothing", "la nada x")] * 6


def report(
    monkeypatch: pytest.MonkeyPatch,
    pairs: Sequence[tuple[str, str]],
    links: Sequence[Links],
    shared: tuple[int, ...] = (),
    **settings: Any,
) -> dict[str, tuple[str | None, int, dict[str | None, list[int]]]]:
    """For each term of a document what was asked for, its count, and each form with its segments, as often as there."""
    translation = Translation((DocumentHypothesis(tuple(t for _, t in pairs), 0.0, 0.0, True, shared),), len(pairs), 0)
    monkeypatch.setattr("scripts.term_report.align_words", lambda *_: [list(links)])
    request = Request([[s for s, _ in pairs]], GREEDY, ["a"], languages=("en", "es"), **settings)
    rows = term_report(make_copier(), request, [translation])
    assert [row["count"] for row in rows] == sorted((row["count"] for row in rows), reverse=True)
    for row in rows:
        assert sum(form["count"] for form in row["forms"]) == row["count"]
        assert all(set(form["where"]) == {"a"} for form in row["forms"])
    return {
        row["source"]: (row["required"], row["count"], {form["target"]: form["where"]["a"] for form in row["forms"]})
        for row in rows
    }


def kernels(target: str, n: int) -> tuple[str, str]:
    return (f"the kernel{'s' * (n % 2)}, `kernel` {n}.", target)


def test_each_form_is_told_with_its_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 of 1,000 words are 20.7 times as many as a word outside of the 302 pieces lets expect, so `kernel` is a term;
    `see` and `the` are too short. The first segment links nothing, but has the form; the last but one has a form that
    occurs twice, the last one another. `el` and `la` stand elsewhere, too."""
    pairs = [kernels(target, n) for n, target in enumerate(KERNEL)] + OTHERS
    links: list[Links] = [((0, 0), (1, 1))] * len(pairs)
    links[0], links[11] = (), ((1, 0), (9, 0), (1, 9))  # of a vocabulary that reads more words than there are
    found = report(monkeypatch, pairs, links)
    assert found["kernel"] == (None, 12, {"núcleo": [*range(1, 10)], "almendra": [10, 11], None: [12]})
    assert set(found) == {"kernel", "nothing"}


def test_what_is_linked_alone_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [kernels(target, n) for n, target in enumerate([*KERNEL[:11], "un grano"])] + OTHERS
    found = report(monkeypatch, pairs, [((0, 0), (1, 1))] * len(pairs))
    assert found["kernel"][2] == {"núcleo": [*range(1, 10)], "almendra": [10, 11], "grano": [12]}


def test_required_terms_are_counted_as_asked_and_the_others_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [kernels(target, n) for n, target in enumerate(KERNEL)] + OTHERS
    links: list[Links] = [((0, 0), (1, 1))] * len(pairs)
    links[11] = ()
    found = report(monkeypatch, pairs, links, terms={"kernel": "almendra", "see": "vacío", "unseen": "x"})
    wanted, written, code = found["kernel"]
    assert (wanted, written) == ("almendra", 24)  # in code, too: what the search asks for
    assert code["almendra"] == [10, 11]
    assert code["núcleo"] == [*range(1, 10)]
    assert found["see"][2]["vacío"] == [*range(13, 19)]
    assert "unseen" not in found


def test_longer_terms_win_and_forms_may_have_a_word_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """`line` alone occurs twice only; a comma parts two words. Two segments are translated by one."""
    pairs = [(f"Command lines {n}", "la línea de órdenes" if n % 3 else "línea órdenes") for n in range(12)]
    pairs += [
        ("a command, line", "una orden, línea"),
        ("a line", "una línea"),
        *OTHERS,
        ("Command", "línea"),
        ("line", ""),
    ]
    links: list[Links] = [((1, 1), (0, 3)) if n % 3 else ((1, 0), (0, 1)) for n in range(12)]
    links += [((1, 1), (2, 2)), ((1, 1),), *([()] * 12), ((1, 0),), ()]
    found = report(monkeypatch, pairs, links, shared=(27,))
    assert found["Command lines"] == (None, 13, {"línea de órdenes": [*range(1, 13)], "línea": [27]})
    assert "line" not in found


def test_scripts_without_spaces_have_terms_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("在東京", "Tokio")] * 12
    assert report(monkeypatch, pairs, [()] * 12) == {}
    assert report(monkeypatch, pairs, [()] * 12, terms={"東京": "Tokio"}) == {
        "東京": ("Tokio", 12, {"Tokio": [*range(1, 13)]})
    }


def test_the_summary_counts_terms_by_their_forms_and_names_those_of_several() -> None:
    def row(source: str, *forms: tuple[str | None, int]) -> dict[str, Any]:
        counts = [{"target": target, "count": count} for target, count in forms]
        return {"source": source, "count": sum(count for _, count in forms), "forms": counts}

    rows = [row("a", ("x", 5)), row("b", ("x", 5), ("y", 2)), row("c", ("x", 5), ("y", 1)), row("d", (None, 3))]
    rows.append(row("e", ("x", 4), ("y", 3), (None, 1)))
    assert (
        summary(rows)
        == "terms: 5, 1 in one form, 2 in several, 2 to check\n  e: x 4, y 3, (not found) 1\n  b: x 5, y 2"
    )
    assert summary([]) == "terms: 0, 0 in one form, 0 in several, 0 to check"


def test_what_is_asked_for_is_told_with_its_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The search of terms writes what was asked for wherever the source has it."""
    table, report = tmp_path / "terms.csv", tmp_path / "report.json"
    table.write_text("de,en\nKater,cat\n", encoding="utf-8")
    source = write_corpus(tmp_path, documents=DOCUMENTS) / "test.jsonl"
    run = make_run(tmp_path / "run")
    main([str(run), str(source), str(report), "--terms", str(table), "--languages", "en", "de"])
    assert "terms: 1, 1 in one form, 0 in several, 0 to check" in capsys.readouterr().out
    found = json.loads(report.read_text(encoding="utf-8"))
    assert (found["kind"], found["documents"]) == ("terms", len(DOCUMENTS))
    forms = [{"target": "Kater", "count": 2, "where": {"north/one": [1], "north/three": [3]}}]
    assert found["terms"] == [{"source": "cat", "required": "Kater", "count": 2, "forms": forms}]
