"""The results of the benchmark of decoding as tables and a figure, from saved JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scaleformer.report.style import line_styles
from scripts.bench_training.report import draw_speeds
from scripts.bench_training.tables import Result, markdown


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


def draw_curves(curves: Sequence[Result], path: Path) -> None:
    """Tokens per second by position, a line for each system, batch and beam."""
    names = [f"{curve['system']}, batch {curve['batch']}, beam {curve['beams']}" for curve in curves]
    lines = {name: (c["ends"], [c["batch"] / s for s in c["seconds"]]) for name, c in zip(names, curves, strict=True)}
    styles = {name: style for (name, _), style in line_styles(names).items()}
    draw_speeds(lines, styles, "position in the target, tokens", path)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f}" if size >= 2**20 else f"{size / 2**20:.2f}"
