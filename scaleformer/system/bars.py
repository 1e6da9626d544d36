"""Progress bars on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn, track
from rich.progress import Progress as Bar
from rich.table import Column

#: Called with the share of the work that is done, and the number of tokens so far.
Progress = Callable[[float, int], None]
T = TypeVar("T")
LINE_SECONDS = 60.0  # between the log lines that replace a bar if stderr is not a terminal


@contextmanager
def translation_bar(description: str) -> Iterator[Progress]:
    """A progress bar on stderr, or one line a minute if that is not a terminal. Yields the function to call."""
    columns = (
        # a long name wraps, so that the numbers stay whole
        TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[tokens]:,} tokens"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=1.0, tokens=0)
        shown = time.monotonic()

        def progress(share: float, tokens: int) -> None:
            nonlocal shown
            bar.update(task, completed=share, tokens=tokens)
            if not bar.console.is_terminal and time.monotonic() - shown >= LINE_SECONDS:
                shown = time.monotonic()
                line = f"{description}  {share:.1%}  {tokens:,} tokens"
                bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

        yield progress


def with_bar(items: Sequence[T], description: str) -> Iterator[T]:
    """The items, with a progress bar on stderr, or one line a minute if that is not a terminal."""
    console = Console(stderr=True)
    shown = time.monotonic()
    for number, item in enumerate(track(items, description, console=console, transient=True)):
        if not console.is_terminal and time.monotonic() - shown >= LINE_SECONDS:
            shown = time.monotonic()
            console.print(f"{description}: {number:,} of {len(items):,}", highlight=False, soft_wrap=True)
        yield item


@contextmanager
def translation_bars() -> Iterator[Callable[[str], Progress]]:
    """Bars one after the other. Yields a function that ends the current bar and begins one with a new description."""
    with ExitStack() as bars:

        def begin(description: str) -> Progress:
            bars.close()
            return bars.enter_context(translation_bar(description))

        yield begin
