"""The results of the attention benchmark as tables and figures, from saved JSON."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from matplotlib.axes import Axes

from scaleformer.benchmarks.tables import Result, Rows, by_length, distinct, markdown
from scaleformer.report.style import label, legend_below, line_styles, panels, plain_numbers, save


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


def choice_tables(result: Result) -> list[str]:
    """For each mechanism the milliseconds of every algorithm, the choice of `auto`, and its excess over the best."""
    tables, rows = [], result["rows"]
    for (mechanism,) in distinct(rows, "mechanism"):
        chosen = [row for row in rows if row["mechanism"] == mechanism]
        lengths = sorted({row["length"] for row in chosen})
        lines = []
        for case, passes in distinct(chosen, "case", "passes"):
            found = {row["length"]: row for row in chosen if (row["case"], row["passes"]) == (case, passes)}
            names = dict.fromkeys(name for row in found.values() for name in row["seconds"])
            for name in names:
                times = {n: row["seconds"][name] for n, row in found.items() if name in row["seconds"]}
                cells = (f"{times[n] * 1e3:.3g}" if n in times else "" for n in lengths)
                lines.append([f"{case}, {passes}: {name}", *cells])
            picked = (f"{found[n]['choice']} +{found[n]['excess']:.0%}" if n in found else "" for n in lengths)
            lines.append([f"{case}, {passes}: auto", *picked])
        tables.append(markdown([f"{mechanism}: ms", *(f"{n:,}" for n in lengths)], lines))
    worst = ", ".join(f"{name} {excess:.0%}" for name, excess in result["worst"].items())
    return [*tables, f"Largest excess of `auto` over the best: {worst}."]


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
        _scales(axis)
        label(axis, f"{case}, {name}", "tokens", words)
    legend_below(figure)
    figure.suptitle(conditions, fontsize=9)
    save(figure, path)


def draw_choices(rows: Rows, path: Path, conditions: str) -> None:
    """Time of each algorithm relative to the best, against length; rings mark the choice of `auto`."""
    mechanisms = [name for (name,) in distinct(rows, "mechanism")]
    kinds = distinct(rows, "case", "passes")
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    styles = line_styles(names)
    figure, axes = panels(len(mechanisms) * len(kinds), columns=len(kinds), width=3.2, height=3.0)
    for (mechanism, kind), axis in zip(product(mechanisms, kinds), axes, strict=True):
        wanted = (mechanism, *kind)
        chosen = sorted((r for r in rows if (r["mechanism"], r["case"], r["passes"]) == wanted), key=_length)
        for name in dict.fromkeys(n for row in chosen for n in row["seconds"]):
            points = [(r["length"], r["seconds"][name] / min(r["seconds"].values())) for r in chosen
                      if name in r["seconds"]]  # fmt: skip
            axis.plot(*zip(*points, strict=True), label=name, **styles[name, ""])
        taken = [(row["length"], 1 + row["excess"]) for row in chosen]
        axis.plot(*zip(*taken, strict=True), "ko", fillstyle="none", markersize=8, label="auto")
        _scales(axis)
        label(axis, f"{mechanism}, {kind[0]},\n{kind[1]}", "tokens", "time / best time" if kind == kinds[0] else "")
    legend_below(figure)
    figure.suptitle(conditions, fontsize=9)
    save(figure, path)


def _scales(axis: Axes) -> None:
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    plain_numbers(axis, y=True)
