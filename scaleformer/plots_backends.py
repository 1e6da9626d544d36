"""The comparison of the attentions: tables and a figure from the results of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a run has no screen

from matplotlib import pyplot

TIMES = (1, 2, 4, 8)
Results = Mapping[str, Mapping[str, Any]]


def write_report(results: Results, report: Path, made: str, lengths: Sequence[int]) -> None:
    """Write a page of Markdown and the figure beside it.

    results  back-end -> {"train": {"loss"}, "lengths": {"parameters", "points": [{"times", "loss", "bleu"}]},
             "speed": {"points": [{"length", "tokens_per_second", "memory"}]}}; what is missing is left empty, and
             {"error"} in its place is shown
    made     how the results were made
    lengths  of the speeds, in tokens
    """
    text = f"""# The attentions side by side

{made}

## Quality

{quality_table(results)}

## Cost

In brackets: relative to `softmax`. Slope: of log time between the two greatest lengths; 1 is linear, 2 quadratic.

{cost_table(results, lengths)}

![loss and speed against length]({report.stem}.png)
"""
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(text, encoding="utf-8")
    draw(results, report.with_suffix(".png"))


def quality_table(results: Results) -> str:
    """Parameters, validation loss, and loss and BLEU at each multiple of the trained length."""
    rows = [["attention", "parameters", "validation", *(f"loss {t}x" for t in TIMES), *(f"BLEU {t}x" for t in TIMES)]]
    for backend, result in results.items():
        trained, lengths = result.get("train", {}), result.get("lengths", {})
        points = {p["times"]: p for p in lengths.get("points", [])}
        parameters = f"{lengths['parameters']:,}" if "parameters" in lengths else ""
        loss = f"{trained['loss']:.3f}" if "loss" in trained else trained.get("error", "")
        cells = [f"{points[t]['loss']:.2f}" if t in points else "" for t in TIMES]
        cells += [f"{points[t]['bleu']:.1f}" if t in points else "" for t in TIMES]
        if "error" in lengths:
            cells[0] = lengths["error"]
        rows.append([f"`{backend}`", parameters, loss, *cells])
    return table(rows)


def cost_table(results: Results, lengths: Sequence[int]) -> str:
    """Speed and memory at each length, also as a multiple of those of `softmax`."""
    heads = [f"{n:,}: tokens/s" for n in lengths] + [f"{n:,}: MiB" for n in lengths]
    rows = [["attention", *heads, "slope"]]
    speeds = {b: {p["length"]: p for p in r["speed"]["points"]} for b, r in results.items() if "speed" in r}
    base = speeds.get("softmax", {})
    for backend, points in speeds.items():
        row = [f"`{backend}`"]
        row += [_cell(points, base, n, "tokens_per_second", lambda value: f"{value:,.0f}") for n in lengths]
        row += [_cell(points, base, n, "memory", lambda value: f"{value / 2**20:,.0f}") for n in lengths]
        rows.append([*row, _slope(points)])
    return table(rows)


def _cell(
    points: Mapping[int, Any], base: Mapping[int, Any], length: int, key: str, show: Callable[[float], str]
) -> str:
    point, peer = points.get(length, {}), base.get(length, {})
    if key not in point:
        return point.get("error", "")
    return show(point[key]) + (f" ({point[key] / peer[key]:.2f})" if peer.get(key) else "")


def _slope(points: Mapping[int, Any]) -> str:
    known = [(n, n / p["tokens_per_second"]) for n, p in sorted(points.items()) if "tokens_per_second" in p]
    if len(known) < 2:
        return ""
    (short, before), (long, after) = known[-2:]
    return f"{math.log(after / before) / math.log(long / short):.2f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first the headings, as a table of Markdown; numbers to the right."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|" + "--:|" * (len(rows[0]) - 1), *lines[1:]])


def draw(results: Results, path: Path) -> None:
    """Loss against length, and tokens a second against length; a line for each attention."""
    figure, (quality, speed) = pyplot.subplots(1, 2, figsize=(13, 5.5))
    for number, (backend, result) in enumerate(results.items()):
        style: dict[str, Any] = {"color": f"C{number % 10}", "linestyle": ("-", "--", ":")[number // 10 % 3]}
        style |= {"marker": "o", "markersize": 3, "label": backend}
        points = result.get("lengths", {}).get("points", [])
        if points:
            quality.plot([p["times"] for p in points], [p["loss"] for p in points], **style)
        known = [p for p in result.get("speed", {}).get("points", []) if "tokens_per_second" in p]
        if known:
            speed.plot([p["length"] for p in known], [p["tokens_per_second"] for p in known], **style)
    quality.set(xscale="log", xlabel="segments of a document, by the most in training", ylabel="loss, nats a token")
    quality.set_xticks(TIMES, [f"{t}x" for t in TIMES])
    quality.minorticks_off()
    speed.set(xscale="log", yscale="log", xlabel="source tokens, and as many target tokens", ylabel="tokens a second")
    for axis in (quality, speed):
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
