"""Tables and figures of the benchmarks."""

from __future__ import annotations

from typing import Any

from scripts.bench_training.report import training_tables
from scripts.bench_training.tables import markdown


def row(**changes: Any) -> dict[str, Any]:
    given = {"system": "ours", "precision": "float32", "length": 128, "speed": 1234.5, "ratio": 1.5, "share": 0.5}
    return {**given, "memory": 2**30, "skipped": "", **changes}


def test_tables_are_aligned() -> None:
    assert markdown(["name", "n"], [["a", "1"], ["long name", "1,000"]]) == (
        "| name      |     n |\n| --------- | ----: |\n| a         |     1 |\n| long name | 1,000 |"
    )


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


def test_training() -> None:
    rows = [row(), row(system="peer", ratio=None), row(length=512, skipped="skipped: about 9 GiB")]
    speed, cost = training_tables({"rows": rows, "peaks": {"float32": 2.5e11}})
    assert "| ours                                   | 1,234 (1.50) | skipped: about 9 GiB |" in speed
    assert "| peer                                   |        1,234 |                      |" in speed
    assert "float32: share of 0.25 TFLOP/s, GiB" in cost
    assert "50%, 1.00" in cost
