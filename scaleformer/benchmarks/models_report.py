"""The results of the benchmarks of whole models as tables and figures, from saved JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaleformer.benchmarks.tables import Result, by_length, distinct, markdown
from scaleformer.report.style import label, legend_below, line_styles, panels, plain_numbers, save


def decoding_tables(result: Result) -> list[str]:
    """Speed against position, and the comparison with the peer if measured."""
    curves = result["curves"]
    ends = curves[0]["ends"]
    header = ["tokens/s up to position", "batch", "beams", *(f"{end:,}" for end in ends), "spread"]
    header += ["state, KiB per beam", "more per token", "KiB per source token"]
    rows = []
    for c in curves:
        speeds = [f"{c['batch'] / seconds:,.0f}" for seconds in c["seconds"]]
        sizes = [f"{c['state'] / 1024:,.0f}", f"{c['growth'] / 1024:.1f}", f"{c['memory'] / 1024:.1f}"]
        rows.append([c["system"], str(c["batch"]), str(c["beams"]), *speeds, f"{c['spread']:.0%}", *sizes])
    tables = [markdown(header, rows)]
    if comparisons := result["comparisons"]:
        first = comparisons[0]
        what = f"{first['source']:,} source tokens, beam {first['beams']}, at target token {first['position']:,}"
        rows = [
            [c["system"], f"{c['seconds'] * 1e3:.1f}", f"{1 / c['seconds']:.1f}", f"{c['ratio']:.1f}", _mib(c["state"])]
            for c in comparisons
        ]
        tables.append(markdown([what, "ms per token", "tokens/s", "times as fast", "state, MiB"], rows))
    if throughput := result.get("throughput"):
        rows = [
            [
                *(r["system"], r["precision"], str(r["texts"]), f"{r['tokens']:,}", str(r["beams"])),
                *(f"{r['speed']:,.0f}", "" if r["ratio"] is None else f"{r['ratio']:.2f}"),
            ]
            for r in throughput
        ]
        header = ["whole translations", "precision", "texts", "tokens each", "beams", "tokens/s", "over CTranslate2"]
        tables.append(markdown(header, rows))
    return tables


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


def draw_curves(curves: Sequence[Result], path: Path) -> None:
    """Tokens per second by position, a line for each system, batch and beam."""
    names = [f"{curve['system']}, batch {curve['batch']}, beam {curve['beams']}" for curve in curves]
    lines = {name: (c["ends"], [c["batch"] / s for s in c["seconds"]]) for name, c in zip(names, curves, strict=True)}
    styles = {name: style for (name, _), style in line_styles(names).items()}
    _draw(lines, styles, "position in the target, tokens", path)


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
    _draw(lines, styles, "tokens of a document, on each side", path)


def _draw(lines: Mapping[str, Any], styles: Mapping[str, Any], x: str, path: Path) -> None:
    figure, (axis,) = panels(1, width=10, height=4.5)
    for name, points in lines.items():
        axis.plot(*points, label=name, **styles[name])
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    plain_numbers(axis, y=True)
    label(axis, "", x, "tokens per second")
    legend_below(figure)
    save(figure, path, beside=())


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f}" if size >= 2**20 else f"{size / 2**20:.2f}"
