"""Tables as text: Markdown that reads well unrendered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]
Rows = Sequence[Result]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that also reads well as text; all columns but the first are right-aligned."""
    lines = [list(header), *map(list, rows)]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(header))]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join(
        "| "
        + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        + " |"
        for line in lines
    )


def by_length(title: str, rows: Rows, keys: tuple[str, ...], cell: Callable[[Result], str]) -> str:
    """A table with a line for each combination of the keys and a column for each length."""
    lengths = sorted({row["length"] for row in rows})
    lines = []
    for key in distinct(rows, *keys):
        cells = {row["length"]: cell(row) for row in rows if tuple(row[k] for k in keys) == key}
        lines.append([", ".join(key), *(cells.get(length, "") for length in lengths)])
    return markdown([title, *(f"{length:,}" for length in lengths)], lines)


def distinct(rows: Iterable[Result], *names: str) -> list[tuple[str, ...]]:
    """The combinations of values that rows have, in order."""
    return list(dict.fromkeys(tuple(row[name] for name in names) for row in rows))
