"""Saved translations as lines, and the command that compares several runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaleformer.evaluation.saved_translations import lines_of, origin, read_translations, same_documents
from scaleformer.system.errors import DataError
from tests.commands.calls import error_line, run_command
from tests.results import TRANSLATIONS, bleu, make_results


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_lines_of_documents_and_segments(tmp_path):
    uneven = {"id": "three", "source": ["x"], "target": ["der hund", "die katze"], "hypothesis": ["der hund die katze"]}
    found = read_translations(write(tmp_path / "t.jsonl", *TRANSLATIONS, uneven))
    documents = lines_of(found, "document")
    assert documents.sources == ["a <b> c", "d", "x"]
    assert documents.hypotheses == ["der hund nein ja", "das haus", "der hund die katze"]
    segments = lines_of(found)
    assert segments.references == ["der rote hund", "ja", "das haus", "der hund", "die katze"]
    assert len(segments.hypotheses) == 5
    assert " ".join(segments.hypotheses[3:]).strip() == "der hund die katze"  # nothing is lost
    assert segments.sources == ["a <b>", "c", "d", "", ""]


def test_faults_are_named_with_their_line(tmp_path):
    for record, reason in (
        ({"id": "x"}, "lacks 'source'"),
        ([1], "list indices must be integers"),
        ({**TRANSLATIONS[0], "target": [1]}, "1 is not a text"),
    ):
        with pytest.raises(DataError, match=rf"t\.jsonl:2: not a saved translation .*{reason}"):
            read_translations(write(tmp_path / "t.jsonl", TRANSLATIONS[0], record))
    with pytest.raises(DataError, match="no translations"):
        read_translations(write(tmp_path / "t.jsonl"))


def test_translations_of_other_programs_have_no_origin(tmp_path):
    """bleu-test.other.jsonl next to a result does not belong to that result."""
    run = make_results(tmp_path / "run", "bleu-test", {**bleu(), "checkpoint": {"path": "a.ckpt", "sha256": "abc"}})
    found = origin(run / "results" / "bleu-test.jsonl")
    assert found["checkpoint"] == "a.ckpt"
    assert origin(run / "results" / "bleu-test.jsonl.gz") == found
    assert origin(run / "results" / "bleu-test.other.jsonl") == {}


def test_runs_are_compared(tmp_path, monkeypatch, capsys):
    checkpoint = {"path": "first/best.ckpt", "sha256": "abc"}
    first = make_results(tmp_path / "first", "bleu-test", {**bleu(), "checkpoint": checkpoint})
    second = make_results(tmp_path / "second", "bleu-test", bleu())
    better = [{**record, "hypothesis": record["target"]} for record in TRANSLATIONS]
    write(second / "results" / "bleu-test.jsonl", *better)
    few = ("bootstrap_samples=20", "randomization_trials=20")
    code, out, err = run_command(monkeypatch, capsys, "compare", f"runs=[{first},{second}]", *few)
    assert code == 0, err
    assert "nrefs:1|bs:20" in out
    result = json.loads((first / "results" / "compare-test.json").read_text(encoding="utf-8"))
    assert (result["baseline"], result["lines"], result["level"]) == ("first", 3, "segment")
    assert result["checkpoints"] == {"first": checkpoint, "second": None}
    scores = {(row["system"], row["metric"]): row["score"] for row in result["rows"]}
    assert scores["second", "chrF++"] == pytest.approx(100)
    assert scores["first", "chrF++"] < 90
    files = [(run / "results" / "bleu-test.jsonl").rename(tmp_path / f"{run.name}.v1.jsonl") for run in (first, second)]
    code, _, err = run_command(monkeypatch, capsys, "compare", f"runs=[{files[0]},{files[1]}]", *few)
    assert code == 0, err
    assert (tmp_path / "compare-first.v1.json").is_file()  # named after the first file, not after a split
    files[0].rename(first / "results" / "bleu-test.jsonl")
    others = [{**better[0], "id": "other"}, better[1]]
    write(second / "results" / "bleu-test.jsonl", *others)
    for runs, message in (
        (f"[{first},{second}]", "first (2 documents) and second (2) differ in documents"),
        (f"[{first},{first}]", "given 2 times: give each run once"),
        (f"[{first},{tmp_path / 'none'}]", "no such run directory or file of translations"),
        (str(first), "1 run to compare: wanted at least 2, runs=[RUN,RUN]"),
        ("[]", "0 runs to compare"),
    ):
        assert message in error_line(run_command(monkeypatch, capsys, "compare", f"runs={runs}", *few))
    write(second / "results" / "bleu-test.jsonl", *better)
    for setting, message in (
        ("level=word", "level is 'word': it must be one of document, segment"),
        ("bootstrap_samples=abc", "bootstrap_samples is 'abc': it must be an int of at least 1"),
        ("bootstrap_samples=0", "bootstrap_samples is 0: it must be an int of at least 1"),
        ("randomization_trials=null", "randomization_trials is null: it must be an int of at least 1"),
    ):
        found = run_command(monkeypatch, capsys, "compare", f"runs=[{first},{second}]", *few, setting)
        assert message in error_line(found)


def test_documents_must_be_the_same(tmp_path):
    found = read_translations(write(tmp_path / "t.jsonl", *TRANSLATIONS))
    same_documents({"a": found, "b": found})
    with pytest.raises(ValueError, match=r"a \(2 documents\) and b \(1\) differ"):
        same_documents({"a": found, "b": found[:1]})
