"""What is known of memory before documents are translated, for `scaleformer.model.footprint`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """How long documents are: of each kind the most that any of them has.

    source, target  tokens; those of the target that it may have
    segments        of the source, that of `</s>` among them
    source_spans, target_spans  the most tokens of 1, 2, 3 ... segments that follow one another; of more, all
    """

    source: int
    target: int
    segments: int
    source_spans: tuple[int, ...]
    target_spans: tuple[int, ...]

    def join(self, other: Extent) -> Extent:
        """That of the documents of both."""
        return Extent(
            max(self.source, other.source),
            max(self.target, other.target),
            max(self.segments, other.segments),
            tuple(map(max, self.source_spans, other.source_spans)),
            tuple(map(max, self.target_spans, other.target_spans)),
        )


def most_of(spans: Sequence[int], segments: int) -> int:
    """The most tokens of so many segments that follow one another, by the spans of an `Extent`."""
    return spans[min(segments, len(spans)) - 1]


def doubled(room: int, needed: int) -> int:
    """The room of a buffer that has doubled until it holds `needed`."""
    while room < needed:
        room *= 2
    return room


class Held(NamedTuple):
    """What an attention holds at once beside its states, in numbers.

    scores  in `attend`, of the size of all scores, (B, H, L, S)
    tiles   in `attend`, for each head and query, whatever the width; in addition to a usual layer
    aside   in `encoded_state`, a token for each of the width D
    """

    scores: int = 0
    tiles: int = 0
    aside: int = 6
