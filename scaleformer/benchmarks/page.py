"""The results of the benchmarks as tables and figures, and the page with all of them, from saved JSON."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scaleformer.benchmarks.attention_report import attention_tables, choice_tables
from scaleformer.benchmarks.attention_report import long_tables as growth_tables
from scaleformer.benchmarks.tables import Result, by_length, distinct, markdown
from scaleformer.report.style import label, legend_below, line_styles, panels, plain_numbers, save
from scaleformer.system.files import atomic_writer
from scaleformer.system.provenance import device_in_words


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
    save(figure, path)


class Section(NamedTuple):
    title: str
    tables: Callable[[Result], list[str]]
    words: str


#: result file name -> section
SECTIONS = {
    "attention": Section(
        "Attention alone",
        attention_tables,
        "The operators against torch's fused softmax attention without a relative term. Up to `pair_limit` tokens each "
        "alternates with softmax alone, beyond it all take turns. Cross-attention has a source as long as the target "
        "and no relative positions. Memory is the peak of a call on top of its arguments.",
    ),
    "attention_terms": Section(
        "The two terms of attention alone",
        attention_tables,
        "The relative term S^rel V and the kernel term phi(Q) phi(K)^T V of the paper (its Figures 4 and 5). Ours is "
        "the whole operator each time, with zero keys for the relative term, and includes the division by the sums.",
    ),
    "attention_long": Section(
        "Attention over long documents",
        growth_tables,
        "Growth is the slope of the logarithm against that of the length: 1 is linear, 2 quadratic. The memory kept "
        "for the backward pass includes queries, keys, values and output.",
    ),
    "attention_auto": Section(
        "Which algorithm `auto` takes",
        choice_tables,
        "Every algorithm of each mechanism, and how much longer the choice of `algorithm=auto` takes than the best of "
        "them. All scores are left out beyond the length where they took four times as long as the best.",
    ),
    "training": Section(
        "A training step",
        training_tables,
        "Forward, backward, clipping and Adam on whole batches. Tokens count source and target; the share of the peak "
        "counts the products with weight matrices only, for all systems alike: attention, normalisation, dropout, the "
        "loss and the optimizer all lower it. Memory is the peak of torch's allocations in a step, parameters and "
        "optimizer states included.",
    ),
    "decoding": Section(
        "Decoding",
        decoding_tables,
        "Random weights that never write `</s>`: every document runs to the last position. Times are medians over the "
        "steps of each window, search and bookkeeping included; spread is the slowest window over the fastest, minus "
        "1. The peer gets all but the last tokens of the target at once, and only these last ones are timed. Whole "
        "translations include the encoder, with all texts in one batch; CTranslate2 has a softmax transformer of the "
        "same sizes.",
    ),
    "decoding_long": Section(
        "Decoding far",
        decoding_tables,
        "As above, to positions far beyond: the time of a step does not depend on how much is already written.",
    ),
}


def write_page(results: Path, page: Path) -> Path:
    """Write the page of all benchmarks with results in the folder, and their figures next to it.

    Raises ValueError without results, OSError where writing fails.
    """
    parts = [
        "# Benchmarks",
        "Written by `make bench` and other commands: each table names its command, conditions and settings. "
        "Absolute speeds depend on the machine: read the ratios.",
    ]
    found = False
    for name, (title, tables, words) in SECTIONS.items():
        if not (path := results / f"{name}.json").is_file():
            continue
        found = True
        result = json.loads(path.read_text(encoding="utf-8"))
        parts += [f"## {title}", words, *tables(result)]
        parts += result.get("notes", [])
        for figure in (path.with_suffix(".png"), path.with_name(f"{name}-memory.png")):
            if figure.is_file():
                page.parent.mkdir(parents=True, exist_ok=True)
                copy = page.parent / f"{page.stem}-{figure.name}"
                shutil.copyfile(figure, copy)
                parts.append(f"![{title}]({copy.name})")
        parts.append(_conditions(result))
    if not found:
        raise ValueError(f"{results}: no benchmark results: run `scaleformer benchmark ... output={results}` first")
    with atomic_writer(page) as file:
        file.write("\n\n".join(parts) + "\n")
    return page


def _conditions(result: Result) -> str:
    """Command, time, machine, versions and settings as a block of code: values to look up, not to read."""
    versions = ", ".join(
        f"{key} {value}"
        for key, value in result["versions"].items()
        if key in ("python", "torch", "transformers", "joeynmt")
    )
    settings = ", ".join(
        f"{key} {value}"
        for key, value in result["settings"].items()
        if key not in ("output", "page") and value is not None
    )
    lines = [result["command"], f"{result['time']}; {device_in_words(result['device'])}; {versions}"]
    return code_block([*lines, f"Settings: {settings}"])


def code_block(lines: Sequence[str]) -> str:
    """Lines of text as a block of code in Markdown, those that are too long broken between words."""
    broken = [part for line in lines for part in textwrap.wrap(line, 100, break_long_words=False)]
    return "\n".join(["```text", *broken, "```"])


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f}" if size >= 2**20 else f"{size / 2**20:.2f}"
