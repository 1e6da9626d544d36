"""Three ways to feed a document to a model: in one pass, segment by segment, or with a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scaleformer.system.schema import Natural, Positive, check_fields
from scaleformer.translation.batches import runs

ViewMode = Literal["pass", "segments", "window"]
Unit = Literal["tokens", "segments"]


@dataclass(frozen=True)
class View:
    """The input of one pass: segments start to stop - 1 of a document, those before `new` as context only."""

    start: int
    new: int
    stop: int


@dataclass(frozen=True)
class Window:
    """A sliding window: at most `size` source tokens (or segments), at most `context` of them already translated.
    Raises ValueError unless context < size."""

    unit: Unit
    size: Positive
    context: Natural

    def __post_init__(self) -> None:
        check_fields(self, "window")
        if self.context >= self.size:
            raise ValueError(f"window.context is {self.context}: it must be below window.size, {self.size}")


def views(mode: ViewMode, tokens: Sequence[int], window: Window | None = None) -> list[View]:
    """The views of a document, given the source tokens of each segment, `<sep>` included.

    pass      everything at once
    segments  each segment alone
    window    groups of segments: as many as fit into size - context together with `</s>`; each is preceded by the
              groups before it that fit into the context and the size. A segment that is too long forms its own group;
              a document that fits as a whole is one view
    """
    count = len(tokens)
    if mode == "pass":
        return [View(0, 0, count)]
    if mode == "segments":
        return [View(i, i, i + 1) for i in range(count)]
    assert window is not None
    sizes = list(tokens) if window.unit == "tokens" else [1] * count
    room = window.size - (window.unit == "tokens")  # </s>
    if sum(sizes) <= room:
        return [View(0, 0, count)]
    groups = [(run[0], run[-1] + 1) for run in runs(enumerate(sizes), max(room - window.context, 1))]
    found = []
    for number, (new, stop) in enumerate(groups):
        start = new
        for earlier, _ in reversed(groups[:number]):
            if sum(sizes[earlier:new]) > window.context or sum(sizes[earlier:stop]) > room:
                break
            start = earlier
        found.append(View(start, new, stop))
    return found
