"""Where segments lie: one layout for all layers, clean segment numbers, and positions cut at borders of segments."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

NO_SEGMENT = torch.iinfo(torch.long).min // 2  # of a state without tokens: before all others, also one segment on


class SegmentLayout:
    """Where the segments of queries and keys lie, with what has been derived of it: all layers of a model share one.

    To derive a plan is to wait for a GPU, and a plan of long segments is large: so it is made once, and goes with the
    layout. Its tensors must not be changed after.

    query_segments  (B, L_Q) integers that never fall along a row; pads at the end may hold any
    key_segments    (B, L_K) the same for the keys
    key_mask        (B, L_K) bool, True for a real token, or None where all are
    """

    def __init__(self, query_segments: Tensor, key_segments: Tensor, key_mask: Tensor | None = None) -> None:
        self.query_segments, self.key_segments, self.key_mask = query_segments, key_segments, key_mask
        self._derived: dict[Hashable, Any] = {}

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, called once for a key: what it returns may depend on the layout and the key alone."""
        # What is made in inference mode may not come near a gradient.
        place = key, torch.is_inference_mode_enabled()
        if place not in self._derived:
            self._derived[place] = make()
        return self._derived[place]  # type: ignore[no-any-return]

    def clean(self, causal: bool) -> tuple[Tensor, Tensor]:
        """`clean_segments` of queries (B, L_Q) and keys (B, L_K)."""
        arguments = self.query_segments, self.key_segments, self.key_mask, causal
        return self.derived(("clean", causal), lambda: clean_segments(*arguments))

    @property
    def mask(self) -> Tensor:
        """(B, L_K) bool: key_mask, all True where none was given."""
        if self.key_mask is not None:
            return self.key_mask
        return self.derived("mask", lambda: torch.ones_like(self.key_segments, dtype=torch.bool))

    def real(self) -> Tensor | None:
        """key_mask, or None where all keys are known to be real."""
        return self.derived("real", self._real)

    def _real(self) -> Tensor | None:
        mask = self.key_mask
        known = mask is not None and mask.device.type == "cpu"  # to ask a GPU would be to wait for it
        return None if mask is None or (known and bool(mask.all())) else mask


def layout_of(
    query_segments: Tensor | None, key_segments: Tensor | None, key_mask: Tensor | None, layout: SegmentLayout | None
) -> SegmentLayout:
    """The layout that a caller gives, whole or as its parts. Raises ValueError where it is neither, or both."""
    parts = query_segments, key_segments, key_mask
    if layout is not None:
        if any(x is not None for x in parts):
            raise ValueError("a layout has segments and a mask of its own: give it, or query_segments, key_segments")
        return layout
    if query_segments is None or key_segments is None:
        raise ValueError("query_segments and key_segments are missing: give both, or a layout")
    return SegmentLayout(query_segments, key_segments, key_mask)


def clean_segments(
    query_segments: Tensor, key_segments: Tensor, key_mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Segment numbers of queries (B, L_Q) and keys (B, L_K) that never fall, whatever the pads hold.

    A pad keeps its number if it lies between those of the real keys around it. In causal attention query i and key i
    have one segment.
    """
    queries, keys = query_segments.long(), key_segments.long()
    if causal:
        common = min(keys.shape[1], queries.shape[1])
        given = keys[:, :common]
        if key_mask is not None:
            given = torch.where(key_mask[:, :common], given, queries[:, :common])
        queries = torch.cat([given, queries[:, common:]], dim=1)
        keys = torch.cat([given, keys[:, common:]], dim=1)
    if key_mask is not None:
        highest = torch.iinfo(torch.long).max
        following = keys.masked_fill(~key_mask, highest).flip(1).cummin(1).values.flip(1)  # (B, L_K)
        keys = torch.minimum(keys, following)
        if causal:
            queries = torch.cat([keys[:, :common], queries[:, common:]], dim=1)
    return queries.cummax(1).values, keys.cummax(1).values  # (B, L_Q), (B, L_K)


class SegmentPieces(NamedTuple):
    """A sequence cut into N pieces of one segment each, at most C positions long.

    start      (B, N) long, the first position; L in the pieces that a shorter row lacks
    positions  (B, N, C) long, those past the end of the piece among them, at most L - 1
    valid      (B, N, C) bool, whether the position belongs to the piece
    segment    (B, N) long, the segment number
    """

    start: Tensor
    positions: Tensor
    valid: Tensor
    segment: Tensor


def cut_segments(segments: Tensor, chunk: int) -> SegmentPieces:
    """Cut rows of clean segment numbers (B, L) at each border and every `chunk` positions after one."""
    batch, length = segments.shape
    position = torch.arange(length, device=segments.device).expand(batch, -1)  # (B, L)
    border = torch.ones_like(segments, dtype=torch.bool)
    border[:, 1:] = segments[:, 1:] != segments[:, :-1]
    offset = position - position.masked_fill(~border, 0).cummax(1).values  # (B, L), place in the segment
    begins = offset % chunk == 0  # (B, L)
    piece = begins.cumsum(1) - 1  # (B, L)
    count = int(piece[:, -1].max()) + 1
    start = torch.full((batch, count), length, device=segments.device)
    start.scatter_(1, piece, position - offset % chunk)
    size = torch.zeros_like(start).scatter_add_(1, piece, torch.ones_like(piece))  # (B, N)
    steps = torch.arange(chunk, device=segments.device)
    last = start.clamp(max=length - 1)
    return SegmentPieces(
        start=start,
        positions=(start[:, :, None] + steps).clamp(max=length - 1),
        valid=steps < size[:, :, None],
        segment=segments.gather(1, last),
    )


def take_positions(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, L, n) by position: index (B, ...) long, the same for all heads; (B, H, ..., n)."""
    batch, heads, length, size = x.shape
    row = torch.arange(batch * heads, device=x.device).view(batch, heads, 1) * length
    flat = (row + index.flatten(1)[:, None]).flatten()  # (B H M,)
    return x.reshape(-1, size).index_select(0, flat).view(batch, heads, *index.shape[1:], size)
