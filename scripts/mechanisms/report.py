"""The comparison of attentions: tables and a figure from the results of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scaleformer.report.style import label, legend_below, length_axis, line_styles, log_axis, panels, save
from scripts.bench_training.tables import markdown

TIMES = (1, 2, 4, 8)
Results = Mapping[str, Mapping[str, Any]]


def write_comparison(
    results: Results, report: Path, made: str, lengths: Sequence[int], slope_lengths: Sequence[int]
) -> None:
    """Write a page of Markdown, and its figure next to it.

    results  mechanism -> {"tasks": {task: {"steps", "accuracy", "decoded"}}, "train": {"loss"},
             "lengths": {"parameters", "points": [{"times", "loss", "bleu"}]},
             "speed": {"points": [{"length", "tokens_per_second", "memory"}]},
             "slopes": {"points": [{"site", "length", "seconds"}]}}; missing parts are left empty, and an {"error"} in
             place of a part is shown
    made     text on how the results were made
    lengths  of the speeds, in tokens; slope_lengths: of the times of a single attention
    """
    text = f"""# The attentions side by side

{made}

## Short tasks

{task_table(results)}

## Quality

{quality_table(results)}

## Cost

A model with each attention. In parentheses: relative to `softmax`.

{cost_table(results, lengths)}

One attention alone, in milliseconds per pass, and the slope of log time against log length from the shortest to the
longest: 1 is linear, 2 quadratic.

{slope_table(results, slope_lengths)}

![loss and speed against length]({report.stem}.png)
"""
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(text, encoding="utf-8")
    draw(results, report.with_suffix(".png"))


def task_table(results: Results) -> str:
    """The steps to 99% of the tokens in each task, and the accuracy of decoding."""
    known = {mechanism: result["tasks"] for mechanism, result in results.items() if "tasks" in result}
    names = list(dict.fromkeys(n for found in known.values() for n, task in found.items() if isinstance(task, dict)))
    header = ["attention", *(head for name in names for head in (f"{name}: steps", "decoded"))]
    rows = []
    for mechanism, found in known.items():
        row = [f"`{mechanism}`"]
        for task in (found[name] for name in names):
            missed = "" if task["accuracy"] >= 0.99 else f" ({task['accuracy']:.0%})"
            row += [f"{task['steps']:,}{missed}", f"{task['decoded']:.1%}"]
        rows.append(row)
    return markdown(header, rows)


def quality_table(results: Results) -> str:
    """Parameters, validation loss, and loss and BLEU at each multiple of the trained length."""
    header = ["attention", "parameters", "validation", *(f"loss {t}x" for t in TIMES), *(f"BLEU {t}x" for t in TIMES)]
    rows = []
    for mechanism, result in results.items():
        trained, lengths = result.get("train", {}), result.get("lengths", {})
        points = {p["times"]: p for p in lengths.get("points", [])}
        parameters = f"{lengths['parameters']:,}" if "parameters" in lengths else ""
        loss = f"{trained['loss']:.3f}" if "loss" in trained else trained.get("error", "")
        cells = [f"{points[t]['loss']:.2f}" if t in points else "" for t in TIMES]
        cells += [f"{points[t]['bleu']:.1f}" if t in points else "" for t in TIMES]
        if "error" in lengths:
            cells[0] = lengths["error"]
        rows.append([f"`{mechanism}`", parameters, loss, *cells])
    return markdown(header, rows)


def cost_table(results: Results, lengths: Sequence[int]) -> str:
    """Speed and memory at each length, also relative to `softmax`."""
    header = ["attention", *(f"{n:,}: tokens/s" for n in lengths), *(f"{n:,}: MiB" for n in lengths)]
    rows = []
    speeds = {b: {p["length"]: p for p in r["speed"]["points"]} for b, r in results.items() if "speed" in r}
    base = speeds.get("softmax", {})
    for mechanism, points in speeds.items():
        row = [f"`{mechanism}`"]
        row += [_cell(points, base, n, "tokens_per_second", lambda value: f"{value:,.0f}") for n in lengths]
        row += [_cell(points, base, n, "memory", lambda value: f"{value / 2**20:,.0f}") for n in lengths]
        rows.append(row)
    return markdown(header, rows)


def slope_table(results: Results, lengths: Sequence[int]) -> str:
    """The times of a single attention at each site, and their growth."""
    header = ["attention", "site", *(f"{n:,}" for n in lengths), "slope"]
    rows = []
    for mechanism, result in results.items():
        points = result.get("slopes", {}).get("points", [])
        for site in dict.fromkeys(p["site"] for p in points):
            here = {p["length"]: p for p in points if p["site"] == site}
            times = {n: p["seconds"] for n, p in sorted(here.items()) if "seconds" in p}
            cells = [f"{1000 * times[n]:,.0f}" if n in times else here.get(n, {}).get("error", "") for n in lengths]
            rows.append([f"`{mechanism}`", site, *cells, _slope(times)])
    return markdown(header, rows)


def _cell(
    points: Mapping[int, Any], base: Mapping[int, Any], length: int, key: str, show: Callable[[float], str]
) -> str:
    point, peer = points.get(length, {}), base.get(length, {})
    if key not in point:
        return point.get("error", "")
    return show(point[key]) + (f" ({point[key] / peer[key]:.2f})" if peer.get(key) else "")


def _slope(times: Mapping[int, float]) -> str:
    """The slope of log time between the shortest and the longest length, in sorted order."""
    if len(times) < 2:
        return ""
    short, *_, long = times
    return f"{math.log(times[long] / times[short]) / math.log(long / short):.2f}"


def draw(results: Results, path: Path) -> None:
    """Loss against length, and tokens per second against length; a line for each attention."""
    figure, (quality, speed) = panels(2, width=7, height=5.5)
    styles = line_styles(list(results))
    for mechanism, result in results.items():
        style = {**styles[mechanism, ""], "label": mechanism}
        if points := result.get("lengths", {}).get("points", []):
            quality.plot([p["times"] for p in points], [p["loss"] for p in points], **style)
        if known := [p for p in result.get("speed", {}).get("points", []) if "tokens_per_second" in p]:
            speed.plot([p["length"] for p in known], [p["tokens_per_second"] for p in known], **style)
    label(quality, "Beyond the trained length", "segments of a document / most in training", "loss, nats per token")
    label(speed, "Training speed", "source tokens, and as many target tokens", "tokens per second")
    length_axis(quality, TIMES)
    length_axis(speed, {p["length"] for r in results.values() for p in r.get("speed", {}).get("points", [])})
    for axis in (quality, speed):
        log_axis(axis)
    legend_below(figure, columns=6)
    save(figure, path, beside=())
