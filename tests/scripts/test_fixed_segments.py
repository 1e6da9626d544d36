"""Which references are fixed, and the rows of the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.text.documents import Document
from scripts.fixed_segments import fixed_of, main
from tests.runs import DOCUMENTS, make_run


def test_half_of_the_references_are_fixed() -> None:
    document = Document("d", tuple("abcde"), tuple("vwxyz"))
    assert fixed_of(document, "half") == {1: "w", 3: "y"}
    assert fixed_of(document, "first") == {0: "v", 1: "w"}


def test_rows_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By segment, fixed segments change nothing without the cache."""
    run = make_run(tmp_path / "run", {"decoding": {"max_length_ratio": 1.0}})
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS), encoding="utf-8")
    main([str(run), str(path)])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    ways = ("nothing fixed", "cache=none", "cache=fixed")
    assert [row[0] for row in rows] == [f"{name}, {way}" for name in ("by segment", "whole") for way in ways]
    assert rows[0][1:] == rows[1][1:]
    assert rows[2][1:] != rows[1][1:]
