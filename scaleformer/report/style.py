"""What all figures share: lines that stay apart in grey print, axes with plain numbers, and how a figure is saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a run has no screen

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

# names and pieces of text may hold two dollars, which are no formula; set here, since all figures come by this module
matplotlib.rcParams["text.parse_math"] = False

#: of systems: dark to light, so that grey print keeps the order; the marker tells them apart without any colour
COLORS = ("#111111", "#0b5fa5", "#d55e00", "#7a5195", "#2e9e6b", "#d4a017", "#8c8c8c")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")  # two more than colours: an eighth line is no second first
#: of modes, kinds and the like
DASHES = ("-", "--", ":", "-.")


def line_styles(names: Sequence[str], variants: Sequence[str] = ("",)) -> dict[tuple[str, str], dict[str, Any]]:
    """How the line of each (name, variant) is drawn: a colour and a marker for the name, dashes for the variant.

    Where there is one name only, colours and markers tell the variants apart too.
    """
    styles = {}
    for (i, name), (j, variant) in product(enumerate(names), enumerate(variants)):
        place = j if len(names) == 1 else i
        color = COLORS[place % len(COLORS)]
        styles[name, variant] = {
            "color": color,
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": DASHES[j % len(DASHES)],
            "markersize": 4.5,
            "linewidth": 1.3,
            "markerfacecolor": (color, "white", "0.75")[j % 3],
        }
    return styles


def panels(count: int, columns: int = 2, width: float = 4.8, height: float = 3.3) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes, `columns` a row at most; width and height of each in inches."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
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


def plain_numbers(axis: Axes, x: bool = True, y: bool = False) -> None:
    """1,000 instead of 1000 or 10^3."""
    for wanted, side in ((x, axis.xaxis), (y, axis.yaxis)):
        if wanted:
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def log_axis(axis: Axes) -> None:
    """A logarithmic y-axis with plain numbers at 1, 2 and 5 times the powers of ten."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_minor_formatter(NullFormatter())
    plain_numbers(axis, x=False, y=True)


def length_axis(axis: Axes, lengths: Iterable[float], ticks: int = 8) -> None:
    """A logarithmic x-axis with ticks at the lengths themselves, thinned where they would run into each other."""
    axis.set_xscale("log", base=2)
    chosen: list[float] = []
    present = sorted(set(lengths))
    apart = (present[-1] / present[0]) ** (1 / ticks) if present else 1
    for value in present:
        if not chosen or value >= chosen[-1] * max(apart, 1.15):
            chosen.append(value)
    axis.xaxis.set_major_locator(FixedLocator(chosen))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def legend_below(figure: Figure, axis: Axes, columns: int = 4) -> None:
    """One legend for all panels, under them."""
    handles, names = axis.get_legend_handles_labels()
    if len(handles) < 2:
        figure.tight_layout()
        return
    rows = -(-len(handles) // columns)
    space = 0.24 * rows / figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, space + 0.02, 1, 1))
    figure.legend(handles, names, loc="lower center", ncols=min(columns, len(handles)), fontsize=8, frameon=False)


def save(figure: Figure, path: str | Path) -> Path:
    """Write a PNG, making its folder, and close the figure. Raises OSError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
