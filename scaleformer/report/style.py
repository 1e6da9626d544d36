"""The style of all figures: lines distinct in grey print, axes with plain numbers, and saving."""

from __future__ import annotations

import logging
import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a run has no screen

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from rich.cells import cell_len

from scaleformer.report.fonts import choose_fonts

# two dollars in a name or text are not a formula; set here, since all figures use this module
matplotlib.rcParams["text.parse_math"] = False
matplotlib.rcParams["pdf.fonttype"] = 42  # text of a PDF stays text for other programs
logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells every table of a font that a PDF takes in

#: of systems: dark to light, so that grey print keeps the order; markers distinguish them without colour
COLORS = ("#111111", "#0b5fa5", "#d55e00", "#7a5195", "#2e9e6b", "#d4a017", "#8c8c8c")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")  # two more than colours: line 8 differs from line 1
#: for modes, kinds and so on
DASHES = ("-", "--", ":", "-.")


def line_styles(names: Sequence[str], variants: Sequence[str] = ("",)) -> dict[tuple[str, str], dict[str, Any]]:
    """The style of each (name, variant): a colour and a marker for the name, dashes for the variant.

    With a single name, colours and markers distinguish the variants too; with a single variant and more names than
    COLORS, dashes distinguish the names too.
    """
    styles = {}
    colors = spread_colors(len(names) if len(names) > 1 else len(variants))
    for (i, name), (j, variant) in product(enumerate(names), enumerate(variants)):
        place = j if len(names) == 1 else i
        dashes = i if len(variants) == 1 and len(names) > len(COLORS) else j
        styles[name, variant] = {
            "color": colors[place],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": DASHES[dashes % len(DASHES)],
            "markersize": 4.5,
            "linewidth": 1.3,
            "markerfacecolor": (colors[place], "white", "0.75")[j % 3],
        }
    return styles


def spread_colors(count: int) -> list[str]:
    """So many different colours: COLORS, or spread over a colour map if those are too few."""
    if count <= len(COLORS):
        return list(COLORS[:count])
    shades = pyplot.colormaps["turbo"]
    colors = []
    for i in range(count):
        dark = (0.85, 0.6)[i % 2]  # neighbours differ, and yellow is visible on white
        red, green, blue, _ = shades(i / (count - 1))
        colors.append(to_hex((dark * red, dark * green, dark * blue)))
    return colors


def panels(count: int, columns: int = 2, width: float = 4.8, height: float = 3.3) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes, at most `columns` per row; width and height of each in inches."""
    columns = min(count, columns)
    rows = -(-count // columns)
    size = (width * columns, height * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    flat = list(axes.flat)
    for axis in flat[count:]:
        axis.remove()
    return figure, flat[:count]


def label(axis: Axes, title: str, x: str, y: str = "") -> None:
    """Title and labels (with their units), a light grid, plain numbers."""
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(x, fontsize=9)
    if y:
        axis.set_ylabel(y, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)


def band(axis: Axes, bounds: Iterable[tuple[float, Sequence[float] | None]], style: Mapping[str, Any]) -> None:
    """A light band between the bounds at each place, in the colour of the line to which they belong; gaps at None."""
    places = [(x, *(pair or (math.nan, math.nan))) for x, pair in bounds]
    if any(math.isfinite(low) for _, low, _ in places):
        x, low, high = zip(*places, strict=True)
        axis.fill_between(x, low, high, color=style["color"], alpha=0.13, linewidth=0)


def plain_numbers(axis: Axes, x: bool = True, y: bool = False) -> None:
    """1,000 instead of 1000 or 10^3."""
    for wanted, side in ((x, axis.xaxis), (y, axis.yaxis)):
        if wanted:
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def step_axis(axis: Axes) -> None:
    """Ticks of the x-axis at whole numbers, each once."""
    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    plain_numbers(axis)


def log_axis(axis: Axes) -> None:
    """A logarithmic y-axis with plain numbers: at 1, 2 and 5 times the powers of ten, closer for small ranges."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high / low > 12 else MaxNLocator(5))
    axis.yaxis.set_minor_locator(NullLocator())
    plain_numbers(axis, x=False, y=True)


def length_axis(axis: Axes, lengths: Iterable[float], ticks: int = 8) -> None:
    """A logarithmic x-axis with ticks at the lengths themselves, thinned where they would overlap.

    The longest always has one.
    """
    axis.set_xscale("log", base=2)
    chosen: list[float] = []
    present = sorted(set(lengths), reverse=True)
    apart = (present[0] / present[-1]) ** (1 / ticks) if present else 1
    for value in present:
        if not chosen or value * max(apart, 1.15) <= chosen[-1]:
            chosen.append(value)
    axis.xaxis.set_major_locator(FixedLocator(chosen))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def floor_at_zero(axis: Axes) -> None:
    """No numbers below zero on the y-axis of what cannot be negative, and room for a marker at zero."""
    low, high = axis.get_ylim()
    if low < 0 <= axis.dataLim.y0:
        high = high if axis.dataLim.y1 > 0 else 1.0  # all values are zero
        axis.set_ylim(-0.04 * high, high)


def legend_below(figure: Figure, columns: int = 4) -> None:
    """One legend for all panels, below them, its columns as names allow; names wider than the figure are wrapped."""
    pairs = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in figure.axes]
    lines = {name: handle for pair in reversed(pairs) for handle, name in pair}
    ordered = dict.fromkeys(name for axis in figure.axes for name in axis.get_legend_handles_labels()[1])
    names, handles = list(ordered), [lines[name] for name in ordered]
    if len(handles) < 2:
        return
    size, handle = 8, 0.75  # points; inches of a line and the space around it
    inches = [_inches(name, size) for name in names]
    width = float(figure.get_size_inches()[0])
    columns = max(1, min(columns, len(handles), int(width / (handle + max(inches)))))
    room = width / columns - handle
    names = [
        name if long <= room else textwrap.fill(name, max(int(len(name) * room / long), 1))
        for name, long in zip(names, inches, strict=True)
    ]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=size, frameon=False)


def _inches(text: str, size: float) -> float:
    """The length of a line of text: characters that the usual font lacks are as wide as high."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        drawn = TextPath((0, 0), text, size=size).get_extents().width
    return float(max(drawn, 0.5 * size * cell_len(text))) / 72


def save(figure: Figure, path: str | Path, beside: Sequence[str] = (".pdf", ".svg")) -> Path:
    """Write a PNG, making its folder, and the same figure beside it in other formats; close the figure.

    Returns the path of the PNG. Raises OSError.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    choose_fonts(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # `choose_fonts` has reported them
        figure.savefig(path, dpi=120)
        for ending in beside:
            date = "CreationDate" if ending == ".pdf" else "Date"
            figure.savefig(path.with_suffix(ending), metadata={date: None})  # equal figures, equal files
    pyplot.close(figure)
    return path
