"""Tables and the figure of the benchmark of decoding."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from scripts.bench_decoding.report import decoding_tables, draw_curves


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


def test_every_line_of_a_figure_looks_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr("scripts.bench_training.report.save", lambda figure, path, **_: figures.append(figure))
    systems = [f"system {n}" for n in range(14)]
    case = {"batch": 1, "beams": 4, "ends": [8, 9], "seconds": [1, 2]}
    draw_curves([{**case, "system": system} for system in systems], tmp_path)
    assert looks(*figures) == len(systems)


def looks(figure: Figure) -> int:
    """How many lines of the first panel differ in color, marker and dashes; all have colors of their own."""
    lines = figure.axes[0].lines
    found = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines}
    assert len(found) == len({color for color, _, _ in found}) == len(lines)
    pyplot.close(figure)
    return len(found)
