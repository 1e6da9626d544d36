"""The layout of segments: one for all layers, with clean segment numbers and positions cut at segment borders."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

T = TypeVar("T")

NO_SEGMENT = torch.iinfo(torch.long).min // 2  # of a state without tokens: below all segments, even plus 1


class SegmentLayout:
    """The segments of queries and keys, and the plans derived from them. All layers of a model share one layout.

    Deriving a plan takes many calls. All but those of the kernels of a GPU wait for the device, and a plan of long
    segments is large. So each is computed once and stored in the layout. Do not change the tensors of a layout.

    query_segments  (B, L_Q) integers that never decrease along a row; pads at the end may hold any
    key_segments    (B, L_K) the same for the keys
    key_mask        (B, L_K) bool, True for a real token, or None if all tokens are real
    """

    def __init__(self, query_segments: Tensor, key_segments: Tensor, key_mask: Tensor | None = None) -> None:
        self.query_segments, self.key_segments, self.key_mask = query_segments, key_segments, key_mask
        self._derived: dict[Hashable, Any] = {}

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make()`, which is called once for each key and may depend only on the layout and the key."""
        # Tensors created in inference mode cannot be used in training.
        place = key, torch.is_inference_mode_enabled()
        if place not in self._derived:
            self._derived[place] = make()
        return self._derived[place]  # type: ignore[no-any-return]

    def clean(self, causal: bool) -> tuple[Tensor, Tensor]:
        """`clean_segments` of queries (B, L_Q) and keys (B, L_K)."""
        arguments = self.query_segments, self.key_segments, self.key_mask, causal
        return self.derived(("clean", causal), lambda: clean_segments(*arguments))

    def ends(self) -> SegmentEnds:
        """`segment_ends` of the keys."""
        return self.derived("ends", lambda: segment_ends(self.key_segments, self.mask))

    @property
    def mask(self) -> Tensor:
        """(B, L_K) bool: key_mask, or all True if none was given."""
        if self.key_mask is not None:
            return self.key_mask
        return self.derived("mask", lambda: torch.ones_like(self.key_segments, dtype=torch.bool))

    def real(self) -> Tensor | None:
        """key_mask, or None if all keys are known to be real."""
        return self.derived("real", self._real)

    def _real(self) -> Tensor | None:
        mask = self.key_mask
        known = mask is not None and mask.device.type == "cpu"  # on a GPU this would synchronise
        return None if mask is None or (known and bool(mask.all())) else mask


def layout_of(
    query_segments: Tensor | None, key_segments: Tensor | None, key_mask: Tensor | None, layout: SegmentLayout | None
) -> SegmentLayout:
    """The layout that a caller gives, whole or as its parts. Raises ValueError if the caller gives neither, or both."""
    parts = query_segments, key_segments, key_mask
    if layout is not None:
        if any(x is not None for x in parts):
            raise ValueError("layout was given with query_segments, key_segments or key_mask: give one or the other")
        return layout
    if query_segments is None or key_segments is None:
        raise ValueError("query_segments or key_segments is missing: give both, or a layout")
    return SegmentLayout(query_segments, key_segments, key_mask)


def clean_segments(
    query_segments: Tensor, key_segments: Tensor, key_mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Segment numbers of queries (B, L_Q) and keys (B, L_K) that never decrease, whatever the pads hold.

    A pad keeps its number if that lies between the numbers of the real keys around it. In causal attention query i and
    key i are in the same segment.
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


class SegmentEnds(NamedTuple):
    """The last tokens of segments, of which a row has up to N; pads are at the end of a row.

    last    (B, L) bool, whether a token is the last one of its segment
    number  (B, L) long, how many segments end before a token; at most N - 1, at pads too
    place   (B, N) long, the positions of the last tokens; 0 where a row has fewer segments
    real    (B, N) bool, False there
    """

    last: Tensor
    number: Tensor
    place: Tensor
    real: Tensor


def segment_ends(segments: Tensor, mask: Tensor) -> SegmentEnds:
    """The last tokens of segments (B, L); mask (B, L), True for a real token."""
    goes_on = mask[:, 1:] & (segments[:, 1:] == segments[:, :-1])
    last = mask & ~functional.pad(goes_on, (0, 1))  # (B, L)
    number, count = last.cumsum(1) - last.long(), last.sum(1, keepdim=True)  # (B, L), (B, 1)
    most = max(1, int(count.max()))
    position = torch.arange(last.shape[1], device=last.device).expand_as(number)  # (B, L)
    place = torch.zeros(len(last), most + 1, dtype=torch.long, device=last.device)
    place.scatter_(1, number.masked_fill(~last, most), position)  # all others into a column that is dropped
    real = torch.arange(most, device=last.device) < count  # (B, N)
    return SegmentEnds(last, number.clamp(max=most - 1), place[:, :most], real)


def take_positions(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, L, n) by position: index (B, ...) long, the same for all heads; (B, H, ..., n)."""
    batch, heads, length, size = x.shape
    row = torch.arange(batch * heads, device=x.device).view(batch, heads, 1) * length
    flat = (row + index.flatten(1)[:, None]).flatten()  # (B H M,)
    return x.reshape(-1, size).index_select(0, flat).view(batch, heads, *index.shape[1:], size)
