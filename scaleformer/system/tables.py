"""Tables for the terminal that never truncate a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

LEAST = 8


def plain_table(title: str | None, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """A narrow table with columns of names, then of numbers, without lines between. The title is text, not markup."""
    shown = Text(title, "table.title") if title else None
    table = Table(title=shown, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name)
    for number in numbers:
        table.add_column(number, justify="right")
    return table


def print_rows(title: str | None, rows: Sequence[Mapping[str, Any]], names: int = 3) -> None:
    """Print rows with the same keys, of which the first ones are names; shares in percent. No rows are said."""
    if not rows:
        print(f"{title or 'rows'}: nothing to count")
        return
    keys = [key for key in rows[0] if key != "interval"]
    table = plain_table(title, keys[:names], [key.replace("_", " ") for key in keys[names:]])
    for row in rows:
        values = [row[key] for key in keys[names:]]
        cells = ["" if v is None else f"{v:.1%}" if isinstance(v, float) else f"{v:,}" for v in values]
        table.add_row(*(Text(str(row[key])) for key in keys[:names]), *cells)
    print_table(table)


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table without truncation, on stdout unless given another console. On a narrow terminal names wrap, and
    numbers too if names would have fewer than LEAST letters a line. In a file each row is one line."""
    console = console or Console()
    names = [column for column in table.columns if column.justify != "right"]
    for column in table.columns:
        column.overflow, column.no_wrap = "fold", column.justify == "right"
    if console.is_terminal:
        width = console.width
        for column in names:
            column.max_width = LEAST
        narrowest = _width(table, console)
        for column in names:
            column.max_width = None
        if narrowest > width:
            for column in table.columns:
                column.no_wrap = False
    else:
        width = max(console.width, _width(table, console))
    usual, console.width = console.width, width  # print(width=...) would be capped at the console's width
    console.print(table)
    console.width = usual


def _width(table: Table, console: Console) -> int:
    """The width of the table with each cell on one line."""
    return console.measure(table, options=console.options.update_width(1_000_000)).maximum
