"""Tables and figures of the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from scaleformer.benchmarks.models_report import decoding_tables, draw_curves, training_tables
from scaleformer.benchmarks.tables import markdown
from scripts.bench_attention.report import attention_tables, draw, long_tables

ATTENTION = {
    "rows": [
        {"case": "causal", "passes": "forward", "length": n, "system": s, "seconds": t, "ratio": r, "memory": None}
        for n, s, t, r in [(256, "softmax", 0.001, 1.0), (256, "ours", 0.0005, 2.0), (512, "softmax", 0.004, 1.0)]
    ]
}


def row(**changes: Any) -> dict[str, Any]:
    given = {"system": "ours", "precision": "float32", "length": 128, "speed": 1234.5, "ratio": 1.5, "share": 0.5}
    return {**given, "memory": 2**30, "skipped": "", **changes}


def test_tables_are_aligned() -> None:
    assert markdown(["name", "n"], [["a", "1"], ["long name", "1,000"]]) == (
        "| name      |     n |\n| --------- | ----: |\n| a         |     1 |\n| long name | 1,000 |"
    )


def test_attention() -> None:
    (table,) = attention_tables(ATTENTION)
    lines = cells(table)
    assert lines[0][1:] == ["256", "512"]
    assert lines[2:] == [["softmax", "1 (1.00)", "4 (1.00)"], ["ours", "0.5 (2.00)", ""]]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


def test_attention_from_plain_python_and_its_memory() -> None:
    more = [r | {"system": "segment-recall", "ratio": None} for r in ATTENTION["rows"][:1]]
    _, memory = attention_tables({"rows": [r | {"memory": 3 * 2**19} for r in [*ATTENTION["rows"], *more]]})
    assert cells(memory)[2:] == [
        ["causal, forward, softmax", "1.5", "1.5"],
        ["causal, forward, ours", "1.5", ""],
        ["causal, forward, segment-recall", "1.5", ""],
    ]


def test_growth() -> None:
    rows: list[dict[str, Any]] = [dict(r) for r in ATTENTION["rows"] if r["system"] == "softmax"]
    for r in rows:
        r["saved"] = 512.0 * r["length"]
    key = "causal, forward, softmax"
    table = long_tables({"rows": rows, "slope_from": 256, "slopes": {key: 2.0}, "memory_slopes": {}})[-1]
    assert cells(table)[0][0] == "growth from 256 tokens on"
    assert cells(table)[2:] == [[key, "2.000", "", "256.00"]]  # of the longer one


def test_training() -> None:
    rows = [row(), row(system="peer", ratio=None), row(length=512, skipped="skipped: about 9 GiB")]
    speed, cost = training_tables({"rows": rows, "peaks": {"float32": 2.5e11}})
    assert "| ours                                   | 1,234 (1.50) | skipped: about 9 GiB |" in speed
    assert "| peer                                   |        1,234 |                      |" in speed
    assert "float32: share of 0.25 TFLOP/s, GiB" in cost
    assert "50%, 1.00" in cost


def test_decoding() -> None:
    curve = {"system": "ours", "batch": 2, "beams": 4, "ends": [500, 1000], "seconds": [0.1, 0.2], "spread": 1.0}
    curve |= {"state": 2048.0, "growth": 0.0, "memory": 512.0}
    compared = {"system": "ours", "source": 8192, "position": 2048, "beams": 4, "seconds": 0.01, "ratio": 3.0}
    tables = decoding_tables({"curves": [curve], "comparisons": [compared | {"state": 2**20}]})
    last = [cell.strip() for cell in tables[0].splitlines()[-1].split("|")[1:-1]]
    assert last == ["ours", "2", "4", "20", "10", "100%", "2", "0.0", "0.5"]
    assert "8,192 source tokens, beam 4, at target token 2,048" in tables[1]
    last = [cell.strip() for cell in tables[1].splitlines()[-1].split("|")[1:-1]]
    assert last == ["ours", "10.0", "100.0", "3.0", "1"]
    assert len(decoding_tables({"curves": [curve], "comparisons": []})) == 1
    whole = {"system": "ours", "precision": "int8", "texts": 320, "tokens": 1350, "beams": 4, "speed": 1234.5}
    table = decoding_tables({"curves": [curve], "comparisons": [], "throughput": [whole | {"ratio": 0.5}]})[1]
    assert [cell.strip() for cell in table.splitlines()[-1].split("|")[1:-1]] == [
        *("ours", "int8", "320", "1,350", "4", "1,234", "0.50")
    ]


@pytest.mark.parametrize("module", ["models_report", "attention_report"])
def test_every_line_of_a_figure_looks_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(f"scaleformer.benchmarks.{module}.save", lambda figure, path, **_: figures.append(figure))
    systems = [f"system {n}" for n in range(14)]
    if module == "models_report":
        case = {"batch": 1, "beams": 4, "ends": [8, 9], "seconds": [1, 2]}
        draw_curves([{**case, "system": system} for system in systems], tmp_path)
    else:
        case = {"case": "causal", "passes": "forward", "seconds": 1.0, "length": 8}
        draw([{**case, "system": system} for system in systems], tmp_path, "conditions")
    (figure,) = figures
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == len({color for color, _, _ in looks}) == len(systems)
    pyplot.close(figure)
