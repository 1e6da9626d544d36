"""Tables as text: Markdown that reads well unrendered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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
