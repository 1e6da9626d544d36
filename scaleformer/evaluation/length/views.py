"""Three ways to feed a document to a model: in one pass, segment by segment, or with a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaleformer.translation.batches import runs

MODES = ("pass", "segments", "window")


@dataclass(frozen=True)
class View:
    """The input of one pass: segments start to stop - 1 of a document, those before `new` as context only."""

    start: int
    new: int
    stop: int


@dataclass(frozen=True)
class Window:
    """A sliding window: at most `size` source tokens (or segments), at most `context` of them already translated.

    Raises ValueError unless 0 <= context < size.
    """

    unit: str
    size: int
    context: int

    def __post_init__(self) -> None:
        if self.unit not in ("tokens", "segments"):
            raise ValueError(f"window.unit={self.unit}: choose tokens or segments")
        if not 0 <= self.context < self.size:
            raise ValueError(
                f"window.size={self.size}, window.context={self.context}: wanted a context of 0 or more, below the size"
            )


def views(mode: str, tokens: Sequence[int], window: Window | None = None) -> list[View]:
    """The views of a document, given the source tokens of each segment, `<sep>` included.

    pass      everything at once
    segments  each segment alone
    window    groups of segments: as many as fit into size - context together with `</s>`; each is preceded by the
              groups before it that fit into the context and the size. A segment that is too long forms its own group;
              a document that fits as a whole is one view
    Raises ValueError for an unknown mode.
    """
    count = len(tokens)
    if mode == "pass":
        return [View(0, 0, count)]
    if mode == "segments":
        return [View(i, i, i + 1) for i in range(count)]
    if mode != "window":
        raise ValueError(f"mode {mode!r}: choose from {', '.join(MODES)}")
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
