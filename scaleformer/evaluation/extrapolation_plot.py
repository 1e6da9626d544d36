"""The figure of a length extrapolation, from what extrapolation.json holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a run has no screen

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

# Okabe & Ito's colours from dark to light, so that they stay apart in grey; markers tell what grey does not.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#CC79A7", "#009E73", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLES: dict[str, Any] = {"pass": "-", "segments": "--", "window": ":"}
MODE_NAMES = {"pass": "one pass", "segments": "segment by segment", "window": "sliding window"}


def plot_extrapolation(payload: Mapping[str, Any], path: str | Path) -> Path:
    """s-BLEU, d-BLEU and loss against document length, a line for each system (colour, marker) and mode (line style).

    s-BLEU compares the same segments at every length; in a longer line d-BLEU finds more n-grams by chance, so that it
    compares systems, not lengths. `payload` as docs/results.md describes extrapolation.json. Raises OSError.
    """
    preset = payload["settings"]["metrics"]
    told = "" if preset == "default" else f" ({preset})"
    panels = {
        f"s-BLEU{told}, the same segments at each length": lambda row: _score(row, "s-BLEU"),
        f"d-BLEU{told}": lambda row: _score(row, "d-BLEU"),
        "loss, nats a target token": _loss,
    }
    shown = {label: of for label, of in panels.items() if any(of(row) is not None for row in payload["results"])}
    figure, axes = pyplot.subplots(1, len(shown), figsize=(4.4 * len(shown), 3.8), squeeze=False)
    for axis, (label, of) in zip(axes.flat, shown.items(), strict=True):
        _draw(axis, payload, of)
        axis.set_title(label, fontsize=10)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
        low, high = axis.get_ylim()
        low = 0 if "BLEU" in label else low
        axis.set_ylim(low, high + 0.08 * (high - low))
    _legend(figure, payload)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


def _loss(row: Mapping[str, Any]) -> float | None:
    return row["loss"]["nats_per_token"] if row["loss"] else None


def _score(row: Mapping[str, Any], metric: str) -> float | None:
    if not row["decode"]:
        return None
    return next(score["score"] for score in row["decode"]["scores"] if score["metric"] == metric)


def by_segments(lengths: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the lengths are numbers of segments, and so is the axis; else it is mean source tokens."""
    return {length["unit"] for length in lengths if length["label"] not in ("segment", "whole")} == {"segments"}


def _place(length: Mapping[str, Any], segments: bool) -> float:
    if not segments:
        return length["source_tokens"]["mean"]
    return length["size"] or length["segments"] / length["documents"]


def _draw(axis: Axes, payload: Mapping[str, Any], values: Any) -> None:
    segments = by_segments(payload["lengths"])
    where = {length["label"]: _place(length, segments) for length in payload["lengths"]}
    for number, system in enumerate(payload["systems"]):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        for mode, style in STYLES.items():
            rows = [r for r in payload["results"] if (r["system"], r["mode"]) == (system["name"], mode)]
            points = [(where[r["length"]], values(r), r["length"]) for r in rows if values(r) is not None]
            line = sorted((x, y) for x, y, label in points if label != "whole")
            whole = [(x, y) for x, y, label in points if label == "whole"]
            if line:
                axis.plot(*zip(*line, strict=True), style, color=colour, marker=marker, markersize=5, linewidth=1.5)
            if whole:  # of mixed lengths: not on the line
                axis.plot(*zip(*whole, strict=True), marker, color=colour, markerfacecolor="white", markersize=7)
    axis.set_xscale("log")
    axis.set_xticks(_spread(where.values()))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_xlabel("segments of a document" if segments else "source tokens of a document (mean)", fontsize=9)
    trained = [where[length["label"]] for length in payload["lengths"] if length["times"] == 1]
    if trained:
        axis.axvline(trained[0], color="0.6", linewidth=1, zorder=0)
        axis.annotate(
            "longest in training",
            (trained[0], 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -9),
            textcoords="offset points",
            fontsize=7,
            color="0.35",
        )


def _spread(places: Iterable[float]) -> list[float]:
    """Those of the places that stand far enough apart on a logarithmic axis for their numbers."""
    ordered = sorted(places)
    least = max((ordered[-1] / ordered[0]) ** 0.12, 1.01)
    found: list[float] = []
    for place in ordered:
        if not found or place / found[-1] > least:
            found.append(place)
    return found


def _legend(figure: Figure, payload: Mapping[str, Any]) -> None:
    handles = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], label=system["name"])
        for i, system in enumerate(payload["systems"])
    ]
    modes = [mode for mode in STYLES if mode in {row["mode"] for row in payload["results"]}]
    if len(modes) > 1 or modes != ["pass"]:
        handles += [Line2D([], [], color="0.3", linestyle=STYLES[mode], label=MODE_NAMES[mode]) for mode in modes]
    if any(length["label"] == "whole" for length in payload["lengths"]):
        hollow = Line2D([], [], color="0.3", marker="o", markerfacecolor="white", linestyle="")
        hollow.set_label("whole documents")
        handles.append(hollow)
    figure.legend(handles=handles, fontsize=9, frameon=False, loc="lower center", ncols=min(len(handles), 6))
