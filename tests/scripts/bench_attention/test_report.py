"""Tables and figures of the attention benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from scripts.bench_attention.report import attention_tables, device_in_words, draw, long_tables
from tests.scripts.bench_decoding.test_report import looks
from tests.scripts.bench_training.test_report import cells

ATTENTION = {
    "rows": [
        {"case": "causal", "passes": "forward", "length": n, "system": s, "seconds": t, "ratio": r, "memory": None}
        for n, s, t, r in [(256, "softmax", 0.001, 1.0), (256, "ours", 0.0005, 2.0), (512, "softmax", 0.004, 1.0)]
    ]
}


def test_attention() -> None:
    (table,) = attention_tables(ATTENTION)
    lines = cells(table)
    assert lines[0][1:] == ["256", "512"]
    assert lines[2:] == [["softmax", "1 (1.00)", "4 (1.00)"], ["ours", "0.5 (2.00)", ""]]


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


def test_every_line_of_a_figure_looks_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr("scripts.bench_attention.report.save", lambda figure, path, **_: figures.append(figure))
    systems = [f"system {n}" for n in range(14)]
    case = {"case": "causal", "passes": "forward", "seconds": 1.0, "length": 8}
    draw([{**case, "system": system} for system in systems], tmp_path, "conditions")
    assert looks(*figures) == len(systems)


def test_a_device_in_words():
    assert device_in_words({"type": "cpu", "name": "AMD EPYC", "threads": 2}) == "AMD EPYC, threads 2"
    assert device_in_words({"type": "cuda", "name": "H200"}) == "H200"
