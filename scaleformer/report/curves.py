"""Figures from the files of a run; computes only running means."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from scaleformer.report import style as plot_style

Points = tuple[list[int], list[float]]  # steps, values


@dataclass(frozen=True)
class Curve:
    """A column of metrics.csv: its label, whether it is seldom (marks) or noisy (grey, with its running mean)."""

    name: str
    label: str
    seldom: bool = False
    noisy: bool = False
    best: Callable[[Sequence[float]], float] | None = None


PANELS = {
    "loss, nats per token": (
        Curve("train/loss", "training (with label smoothing and dropout)", noisy=True),
        Curve("val/loss", "validation", seldom=True, best=min),
    ),
    "validation BLEU": (Curve("val/bleu", "validation", seldom=True, best=max),),
    "learning rate": (Curve("train/learning_rate", "learning rate"),),
    "training tokens per second": (Curve("train/tokens_per_second", "speed", noisy=True),),
}


def plot_learning_curves(run: str | Path, path: str | Path | None = None) -> Path | None:
    """metrics.csv -> plots/learning_curves.png of the run, or `path`: a panel for each logged quantity. None without
    any. Values that are not finite are gaps; a quantity without finite values has no panel. Raises ValueError where
    metrics.csv is not that of a run."""
    run = Path(run)
    curves = _finite_curves(run)
    panels = {label: [c for c in wanted if c.name in curves] for label, wanted in PANELS.items()}
    panels = {label: shown for label, shown in panels.items() if shown}
    if not panels:
        return None
    figure, axes = plot_style.panels(len(panels), height=3.1)
    for axis, (label, shown) in zip(axes, panels.items(), strict=True):
        _draw(axis, label, shown, curves)
    return plot_style.save(figure, path or run / "plots" / "learning_curves.png")


def compare_learning_curves(runs: Mapping[str, Path], path: str | Path) -> Path | None:
    """The curves of several runs, a panel for each column that at least two metrics.csv have; None without any.

    runs  name in the legend -> run directory. Raises ValueError where a metrics.csv is not that of a run.
    """
    curves = {name: _finite_curves(run) for name, run in runs.items()}
    wanted = [(title, curve) for title, shown in PANELS.items() for curve in shown]
    wanted = [(title, curve) for title, curve in wanted if sum(curve.name in found for found in curves.values()) > 1]
    if not wanted:
        return None
    figure, axes = plot_style.panels(len(wanted))
    styles = plot_style.line_styles(list(curves))
    for axis, (title, curve) in zip(axes, wanted, strict=True):
        for name, found in curves.items():
            if curve.name not in found:
                continue
            steps, values = found[curve.name]
            if curve.noisy and len(values) >= 20:
                values = running_mean(values, len(values) // 20 + 1)
            every = 1 if curve.seldom else max(1, len(steps) // 8)
            marks = sorted({*range(0, len(steps), every), *_lonely(values)})
            axis.plot(steps, values, **styles[name, ""], markevery=marks, label=name)
        what = curve.label.split(" (")[0]
        plot_style.label(axis, title if len(PANELS[title]) == 1 else f"{what} {title}", "step")
        plot_style.floor_at_zero(axis)
        plot_style.step_axis(axis)
        plot_style.plain_numbers(axis, x=False, y=axis.get_ylim()[1] >= 1000)
    plot_style.legend_below(figure)
    return plot_style.save(figure, path)


def read_curves(path: Path) -> dict[str, Points]:
    """The non-empty columns of a metrics.csv, each with the steps of its values; {} without a file.

    Gaps are left out. Raises ValueError for any other file.
    """
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        names = [name for name in (rows[0] if rows else {}) if name not in ("step", None)]
        found = {n: [(int(row["step"]), float(row[n])) for row in rows if row[n]] for n in names}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the metrics of a run ({type(error).__name__}: {error})") from error
    return {n: ([step for step, _ in points], [value for _, value in points]) for n, points in found.items() if points}


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """The mean of the finite values among `width` values: the current one and those before it.

    A value that is not finite stays a gap, as nan.
    """
    means = []
    for i, value in enumerate(values):
        part = values[max(0, i + 1 - width) : i + 1]
        if not math.isfinite(sum(part)):
            part = [v for v in part if math.isfinite(v)]
        means.append(sum(part) / len(part) if math.isfinite(value) else math.nan)
    return means


def _finite_curves(run: Path) -> dict[str, Points]:
    """The curves of a run with at least one finite value; values that are not finite are nan."""
    found = {}
    for name, (steps, values) in read_curves(run / "metrics.csv").items():
        if any(map(math.isfinite, values)):
            found[name] = steps, [value if math.isfinite(value) else math.nan for value in values]
    return found


def _lonely(values: Sequence[float]) -> list[int]:
    """The indices of finite values between gaps, which no line would show."""
    finite = [False, *map(math.isfinite, values), False]
    return [i for i in range(len(values)) if finite[i : i + 3] == [False, True, False]]


def _draw(axis: Axes, label: str, shown: Sequence[Curve], curves: Mapping[str, Points]) -> None:
    for curve in shown:
        steps, values = curves[curve.name]
        if curve.noisy and len(values) >= 20:
            axis.plot(steps, values, color="0.75", linewidth=0.8)
            values = running_mean(values, len(values) // 20 + 1)
        line = "--" if curve.seldom else "-"
        marks = range(len(values)) if curve.seldom else _lonely(values)
        look: dict[str, Any] = {"marker": "o", "markersize": 3.5, "markevery": list(marks)} if marks else {}
        axis.plot(steps, values, line, color="black", linewidth=1.2, label=curve.label, **look)
        if curve.best is not None:
            value = curve.best([v for v in values if math.isfinite(v)])
            at = steps[values.index(value)]
            axis.annotate(
                f"{value:.2f}",
                (at, value),
                xytext=(0, 6 if curve.best is max else -6),
                textcoords="offset points",
                ha="center",
                va="bottom" if curve.best is max else "top",
                fontsize=8,
            )
    plot_style.label(axis, label, "step")
    plot_style.step_axis(axis)
    plot_style.plain_numbers(axis, x=False, y=axis.get_ylim()[1] >= 1000)
    axis.margins(y=0.12)
    plot_style.floor_at_zero(axis)
    if len(shown) > 1:
        axis.legend(fontsize=8, frameon=False)
