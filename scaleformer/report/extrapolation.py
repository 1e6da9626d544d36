"""Figures of extrapolation.json (docs/result-files.md): quality, faults and cost as documents grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scaleformer.evaluation.metrics import Metrics
from scaleformer.report.style import (
    band,
    floor_at_zero,
    label,
    legend_below,
    length_axis,
    line_styles,
    log_axis,
    panels,
    plain_numbers,
    save,
)

MODES = {"pass": "in one pass", "segments": "segment by segment", "window": "sliding window"}
TOKENS, SEGMENTS = "source tokens of a document (mean)", "segments of a document"
Value = Callable[[Mapping[str, Any]], float | None]


@dataclass(frozen=True)
class Panel:
    """A quantity against length. reference: its value for the reference; least: a range that the axis always shows."""

    title: str
    unit: str
    value: Value
    log: bool = False
    reference: Callable[[Mapping[str, Any]], float] | None = None
    least: tuple[float, float] | None = None


def plot_extrapolation(result: Mapping[str, Any], folder: str | Path, name: str = "extrapolation") -> dict[str, Path]:
    """Draw NAME-quality.png, -faults.png, -position.png and -cost.png, as far as there is data. Returns title -> file.

    result  the content of extrapolation.json. Raises ValueError for other content.
    """
    try:
        figures = {
            "Quality against length": ("quality", _quality(result)),
            "Faults against length": ("faults", _faults(result)),
            "Loss and quality inside the document": ("position", _position(result)),
            "Time and memory against length": ("cost", _cost(result)),
        }
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{name}: no result of an evaluation by length ({type(error).__name__}: {error})") from error
    return {
        title: save(figure, Path(folder) / f"{name}-{part}.png")
        for title, (part, figure) in figures.items()
        if figure is not None
    }


def plot_quality(result: Mapping[str, Any], path: str | Path) -> Path:
    """BLEU, chrF++ and loss against length, in one figure; missing scores are left out. Raises OSError.

    s-BLEU and chrF++ compare the same segments at every length. d-BLEU finds more n-grams by chance in longer lines, so
    it compares systems, not lengths.
    """
    figure = _quality(result)
    assert figure is not None, "an evaluation computes something"
    return save(figure, path)


def by_segments(lengths: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the lengths are numbers of segments, which the axis then shows; otherwise it shows mean source tokens."""
    return {length["unit"] for length in lengths if length["label"] not in ("segment", "whole")} == {"segments"}


def _place(length: Mapping[str, Any], segments: bool) -> float:
    if not segments:
        return length["source_tokens"]["mean"]
    return length["size"] or length["segments"] / length["documents"]


def _score(metric: str) -> Value:
    return lambda r: next((s["score"] for s in r["decode"]["scores"] if s["metric"] == metric), None)


def _ratio(row: Mapping[str, Any]) -> float | None:
    return next((s["details"]["length_ratio"] for s in row["decode"]["scores"] if s["metric"] == "d-BLEU"), None)


def _quality(result: Mapping[str, Any]) -> Figure | None:
    metrics = result["settings"]["metrics"]
    how = "" if metrics == {"tokenize": "13a", "lowercase": False} else f" ({Metrics(**metrics)})"
    return _against_length(
        result,
        (
            Panel(f"s-BLEU{how}", "BLEU, aligned segments", _score("s-BLEU")),
            Panel(f"d-BLEU{how}", "BLEU, documents as lines", _score("d-BLEU")),
            Panel(f"chrF++{how}", "chrF++, aligned segments", _score("chrF++")),
            Panel("teacher-forced loss", "nats per target token", lambda row: row["loss"]["nats_per_token"]),
        ),
    )


def _faults(result: Mapping[str, Any]) -> Figure | None:
    documents = {length["label"]: length["documents"] for length in result["lengths"]}

    def segments(row: Mapping[str, Any]) -> float:
        wrong = sum(row["decode"][f"{kind}_segments"] for kind in ("missing", "extra", "empty"))
        return 100 * wrong / max(row["decode"]["reference_segments"], 1)

    return _against_length(
        result,
        (
            Panel(
                "repeated 4-grams",
                "% of 4-grams in a document",
                lambda r: 100 * r["decode"]["repeated_4grams"],
                reference=lambda r: 100 * r["decode"]["reference_repeated_4grams"],
                least=(0, 1),
            ),
            Panel("missing, extra or empty segments", "% of those of the reference", segments, least=(0, 1)),
            Panel(
                "cut at the length limit",
                "% of documents",
                lambda r: 100 * len(r["decode"]["unfinished"]) / max(documents[r["length"]], 1),
                least=(0, 1),
            ),
            Panel("length of the hypothesis", "tokens, hypothesis / reference", _ratio, least=(0.95, 1.05)),
        ),
    )


def _cost(result: Mapping[str, Any]) -> Figure | None:
    wanted: list[Panel] = []
    for part, what in (("decode", "translation"), ("loss", "teacher-forced loss")):
        wanted += [
            Panel(f"time of the {what}", "seconds, all documents", _cost_of(part, "seconds", 1), log=True),
            Panel(
                f"memory of the {what}", "MiB above the start", _cost_of(part, "memory_growth_bytes", 1 << 20), log=True
            ),
        ]
    return _against_length(result, wanted)


def _cost_of(part: str, name: str, unit: float) -> Value:
    return lambda r: r[part]["cost"][name] / unit


def _against_length(result: Mapping[str, Any], wanted: Sequence[Panel]) -> Figure | None:
    """Panels for the available quantities; in each, a line for each system and mode. Whole documents, of mixed lengths,
    are hollow markers next to it."""
    segments = by_segments(result["lengths"])
    lengths = {length["label"]: _place(length, segments) for length in result["lengths"]}
    styles = _styles(result)
    drawn: list[tuple[Panel, dict[tuple[str, str, bool], list[tuple[float, float]]]]] = []
    for panel in wanted:
        lines: dict[tuple[str, str, bool], list[tuple[float, float]]] = {}
        for row in result["results"]:
            found = _present(row, panel.value)
            if found is not None and (not panel.log or found > 0):
                line = row["system"], row["mode"], row["length"] == "whole"
                lines.setdefault(line, []).append((lengths[row["length"]], found))
        if lines:
            drawn.append((panel, lines))
    if not drawn:
        return None
    figure, axes = panels(len(drawn))
    for axis, (panel, lines) in zip(axes, drawn, strict=True):
        for key, style in styles.items():
            whole = {**style, "linestyle": "", "markerfacecolor": "white", "markersize": 7}
            name = _name(key, styles)
            for mixed, look, text in ((False, style, name), (True, whole, f"{name}, whole documents")):
                if points := sorted(lines.get((*key, mixed), [])):
                    axis.plot(*zip(*points, strict=True), **look, label=text)
        if panel.reference is not None:
            own = {lengths[r["length"]]: panel.reference(r) for r in result["results"] if r["decode"]}
            axis.plot(*zip(*sorted(own.items()), strict=True), color="0.6", linewidth=3, alpha=0.6, zorder=1)
            axis.set_title("grey: the reference itself", loc="right", fontsize=7, color="0.4")
        label(axis, panel.title, SEGMENTS if segments else TOKENS, panel.unit)
        length_axis(axis, lengths.values())
        if panel.log:
            log_axis(axis)
        else:
            plain_numbers(axis, x=False, y=True)
            axis.margins(y=0.1)
            floor_at_zero(axis)
        if panel.least is not None:
            low, high = axis.get_ylim()
            high = max(high, panel.least[1], 1.15 * axis.dataLim.y1)  # keeps a flat line off the upper edge
            axis.set_ylim(min(low, panel.least[0]) if panel.least[0] else -0.04 * high, high)
        _mark_trained(axis, result)
    legend_below(figure, columns=3)
    return figure


def _present(row: Mapping[str, Any], value: Value) -> float | None:
    """A value of a result; None if it was not computed."""
    try:
        return value(row)
    except TypeError:
        if row["decode"] is None or row["loss"] is None:
            return None
        raise


def _position(result: Mapping[str, Any]) -> Figure | None:
    """For the longest documents: loss by target position, and chrF++ by position in the document."""
    styles = _styles(result)
    by_length = {(r["system"], r["mode"], r["length"]): r for r in result["results"]}
    longest = max(result["lengths"], key=lambda length: length["source_tokens"]["mean"])["label"]
    rows = {key: by_length[(*key, longest)] for key in styles if (*key, longest) in by_length}
    losses = {key: row["loss"]["by_position"] for key, row in rows.items() if row["loss"]}
    deciles = {key: row["decode"]["by_decile"] for key, row in rows.items() if row["decode"]}
    if not losses and not deciles:
        return None
    figure, axes = panels(bool(losses) + bool(deciles))
    rest = list(axes)
    if losses:
        axis = rest.pop(0)
        places = _by_place(axis, losses, styles, ("nats_per_token", "interval"), 0.5)
        what = f"loss against position ({longest}{_documents(losses)})"
        label(axis, what, "target position, tokens", "nats per target token")
        length_axis(axis, places)
    if deciles:
        axis = rest.pop(0)
        _by_place(axis, deciles, styles, ("chrf", "chrf_interval"), 50)
        floor_at_zero(axis)
        what = f"quality against position ({longest}{_documents(deciles)})"
        label(axis, what, "position in the document, %", "chrF++, aligned segments")
    legend_below(figure, columns=3)
    return figure


Key = tuple[str, str]
Curves = Mapping[Key, Sequence[Mapping[str, Any]]]


def _by_place(axis: Axes, curves: Curves, styles: Mapping[Key, Any], names: tuple[str, str], half: float) -> set[float]:
    """Draw a value and its interval at the middle of each place; returns the middles."""
    middles = set()
    for key, bins in curves.items():
        value, interval = names
        points = [(half * (b["from"] + b["to"]), b) for b in bins if b[value] is not None and b.get("tokens", 1)]
        if points:
            x = [place for place, _ in points]
            axis.plot(x, [b[value] for _, b in points], **styles[key], label=_name(key, styles))
            band(axis, [(place, b.get(interval)) for place, b in points], styles[key])
            middles |= {*x}
    return middles


def _documents(curves: Curves) -> str:
    """From how many documents the places of curves are, the fewest and the most; "" if their results do not say."""
    counts = {place["documents"] for places in curves.values() for place in places if place.get("documents")}
    return f", {'-'.join(map(str, dict.fromkeys((min(counts), max(counts)))))} documents" if counts else ""


def _mark_trained(axis: Axes, result: Mapping[str, Any]) -> None:
    """A dotted line at the longest example of the first system's training; the legend names it."""
    segments = by_segments(result["lengths"])
    trained = [_place(length, segments) for length in result["lengths"] if length["times"] == 1]
    if trained:
        axis.axvline(trained[0], color="0.45", linestyle=(0, (1, 2)), linewidth=1, label="longest in training")


def _styles(result: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    present = {row["mode"] for row in result["results"]}
    modes = [mode for mode in MODES if mode in present]
    return line_styles([system["name"] for system in result["systems"]], modes)


def _name(key: tuple[str, str], all_: Iterable[tuple[str, str]]) -> str:
    return f"{key[0]}, {MODES[key[1]]}" if {mode for _, mode in all_} != {"pass"} else key[0]
