"""The results of the benchmark of training as tables and a figure, from saved JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaleformer.report.style import label, legend_below, line_styles, panels, plain_numbers, save
from scripts.bench_training.tables import Result, by_length, distinct


def training_tables(result: Result) -> list[str]:
    """Two tables per precision: tokens per second and their ratio to the best peer's; share of the peak, memory."""
    tables = []
    for (precision,) in distinct(result["rows"], "precision"):
        chosen = [row for row in result["rows"] if row["precision"] == precision]
        cost = f"{precision}: share of {result['peaks'][precision] / 1e12:.2f} TFLOP/s, GiB"
        speed = f"{precision}: tokens/s (over the best peer)"
        tables += [by_length(speed, chosen, ("system",), _speed_cell), by_length(cost, chosen, ("system",), _cost_cell)]
    return tables


def _speed_cell(row: Result) -> str:
    ratio = "" if row["ratio"] is None else f" ({row['ratio']:.2f})"
    return row["skipped"] or f"{row['speed']:,.0f}{ratio}"


def _cost_cell(row: Result) -> str:
    return "" if row["skipped"] else f"{row['share']:.0%}, {row['memory'] / 2**30:.2f}"


def draw_training(rows: Sequence[Result], path: Path) -> None:
    """Tokens per second of a training step by document length: systems by colour, precisions by dashes."""
    systems, precisions = (list(dict.fromkeys(row[key] for row in rows)) for key in ("system", "precision"))
    lines, styles = {}, {}
    for (system, precision), style in line_styles(systems, precisions).items():
        points = sorted(
            (row["length"], row["speed"])
            for row in rows
            if (row["system"], row["precision"]) == (system, precision) and not row["skipped"]
        )
        if points:
            name = f"{system}, {precision}"
            lines[name], styles[name] = zip(*points, strict=True), style
    draw_speeds(lines, styles, "tokens of a document, on each side", path)


def draw_speeds(lines: Mapping[str, Any], styles: Mapping[str, Any], x: str, path: Path) -> None:
    """Tokens per second against `x`, on logarithmic scales; lines: by name, the places and the speeds."""
    figure, (axis,) = panels(1, width=10, height=4.5)
    for name, points in lines.items():
        axis.plot(*points, label=name, **styles[name])
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    plain_numbers(axis, y=True)
    label(axis, "", x, "tokens per second")
    legend_below(figure)
    save(figure, path, beside=())
