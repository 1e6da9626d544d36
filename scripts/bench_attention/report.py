"""The results of the attention benchmark as tables and figures, from saved JSON."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from matplotlib.axes import Axes

from scaleformer.report.style import label, legend_below, line_styles, panels, plain_numbers, save
from scripts.bench_training.tables import Result, Rows, by_length, distinct, markdown


def attention_tables(result: Result) -> list[str]:
    """Milliseconds of the operators and the softmax time divided by theirs; then their memory."""
    tables, rows = [], result["rows"]
    for case, passes in distinct(rows, "case", "passes"):
        chosen = [row for row in rows if (row["case"], row["passes"]) == (case, passes)]
        softmax = any(row["ratio"] is not None for row in chosen)
        tables.append(by_length(f"{case}, {passes}: ms" + " (softmax / this)" * softmax, chosen, ("system",), _time))
    if any(row["memory"] for row in rows):
        keys = ("case", "passes", "system")
        tables.append(by_length("peak MiB", rows, keys, lambda row: f"{row['memory'] / 2**20:.3g}"))
    return tables


def long_tables(result: Result) -> list[str]:
    """As `attention_tables`, and the growth of time and memory and the memory kept for the backward pass."""
    growth, memory = result["slopes"], result["memory_slopes"]
    saved = {
        _key(row): f"{row['saved'] / 1024:.2f}" for row in sorted(result["rows"], key=_length) if row["saved"]
    }  # of the largest length
    lines = [
        [key, f"{slope:.3f}", f"{memory[key]:.3f}" if key in memory else "", saved.get(key, "")]
        for key, slope in growth.items()
    ]
    first = f"growth from {result['slope_from']:,} tokens on"
    header = [first, "slope of log time", "slope of log memory", "KiB kept for backward, per token and head"]
    return [*attention_tables(result), markdown(header, lines)]


def device_in_words(device: Result) -> str:
    """The `device` of a result for people: "AMD EPYC, threads 2"."""
    return ", ".join([device["name"], *(f"{key} {device[key]}" for key in device if key not in ("type", "name"))])


def _time(row: Result) -> str:
    ratio = "" if row["ratio"] is None else f" ({row['ratio']:.2f})"
    return f"{row['seconds'] * 1e3:.3g}{ratio}"


def _key(row: Result) -> str:
    return ", ".join((row["case"], row["passes"], row["system"]))


def _length(row: Result) -> int:
    length: int = row["length"]
    return length


def draw(rows: Rows, path: Path, conditions: str, quantity: str = "seconds") -> None:
    """Time, or memory, against length on logarithmic scales: a slope of one is linear growth, two is quadratic.

    One row of panels for each case, forward and forward+backward ([Scaleformer] Figures 4 to 6).
    """
    unit, words = (1e3, "milliseconds") if quantity == "seconds" else (2**-20, "MiB")
    cases = [case for (case,) in distinct(rows, "case")]
    passes = [name for (name,) in distinct(rows, "passes")]
    systems = [system for (system,) in distinct(rows, "system")]
    styles = line_styles(systems)
    figure, axes = panels(len(cases) * len(passes), columns=len(passes), width=6, height=3.6)
    for (case, name), axis in zip(product(cases, passes), axes, strict=True):
        chosen = [row for row in rows if (row["case"], row["passes"]) == (case, name) and row[quantity]]
        for (system,) in distinct(chosen, "system"):
            points = sorted((row["length"], row[quantity] * unit) for row in chosen if row["system"] == system)
            axis.plot(*zip(*points, strict=True), label=system, **styles[system, ""])
        set_scales(axis)
        label(axis, f"{case}, {name}", "tokens", words)
    legend_below(figure)
    figure.suptitle(conditions, fontsize=9)
    save(figure, path, beside=())


def set_scales(axis: Axes) -> None:
    """Logarithmic axes with plain numbers."""
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    plain_numbers(axis, y=True)
