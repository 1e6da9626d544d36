"""How segment-gated attention by states goes through a batch: pieces of segments, and steps of some pieces each.

Each segment number is given a slot, so that the distance of two slots is that of the segments as far as the gate tells
them apart. Slots are taken in groups of T: what is near to a group lies in two ranges of T slots, from `offset` slots
before the group on. Range r has the slots T r - offset .. T r - offset + T - 1, and group g sees ranges g and g + 1.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.gate import far_scale

_GROUP = 8  # slots in a group, or more if the gate reaches farther


class Pieces(NamedTuple):
    """A sequence of length L cut into P pieces of at most C positions, each of one segment; L is at least 1.

    start, slot  (P,) long, the first position and the slot of each
    positions    (P, C) long, those past the end of a piece among them, at most L - 1
    valid        (P, C) bool, whether the piece has such a position
    there        (P, C) bool, whether it has and it is no pad
    place        (L,) long, where a position goes: piece times C plus the place in it
    starts, slots  as lists; starts ends with L
    shorter      how many pieces before each are shorter than C
    jumps        how many pieces up to each have a slot that is not the one after that of the piece before
    lacking      how many pieces before each have some place that is not there
    """

    start: Tensor
    slot: Tensor
    positions: Tensor
    valid: Tensor
    there: Tensor
    place: Tensor
    starts: list[int]
    slots: list[int]
    shorter: list[int]
    jumps: list[int]
    lacking: list[int]

    @property
    def chunk(self) -> int:
        return self.positions.shape[1]

    def even(self, first: int, last: int) -> bool:
        """Whether the pieces first .. last - 1 lie one after the other, each but the last of C positions."""
        return self.shorter[last - 1] == self.shorter[first]

    def rising(self, first: int, last: int) -> bool:
        """Whether each of these pieces has a slot of its own, one after the other."""
        return self.jumps[last - 1] == self.jumps[first]

    def full(self, first: int, last: int) -> bool:
        """Whether these pieces have a key at every place."""
        return self.lacking[last] == self.lacking[first]

    def continues(self, first: int, last: int) -> list[bool]:
        """Whether the pieces first .. last go on with the segment of the piece before: last - first + 1 answers."""
        total, slots = len(self.slots), self.slots
        return [0 < n < total and slots[n - 1] == slots[n] for n in range(first, last + 1)]


class Step(NamedTuple):
    """Query pieces that are worked on together, and the keys that are read before them.

    first, last  the query pieces first .. last - 1
    keys         blocks of key pieces, (first, last) each; in causal attention one, that of the queries
    low, high    the ranges of slots that are at hand: low .. high - 1
    group        the first group; the last one is high - 2
    """

    first: int
    last: int
    keys: list[tuple[int, int]]
    low: int
    high: int
    group: int


@dataclass(frozen=True)
class RowPlan:
    """One row of the batch.

    queries, keys  their pieces
    steps          in order
    rest           blocks of key pieces that come after all of them: far from every query
    scale          (slots,) for a query, that of what is far, and 1 for what is near
    key_slots      (L_K,) the slot of each key
    real           (L_K,) bool, False for pads, or None
    """

    queries: Pieces
    keys: Pieces
    steps: list[Step]
    rest: list[tuple[int, int]]
    scale: Tensor
    key_slots: Tensor
    real: Tensor | None


@dataclass(frozen=True)
class StatePlan:
    """rows; group T and offset in slots, heads worked on together."""

    rows: list[RowPlan]
    group: int
    offset: int
    heads: int


def make_slots(queries: Tensor, keys: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Slots (L_Q,), (L_K,) of segment numbers: gaps of more than `reach` are cut to it."""
    numbers, index = torch.unique(torch.cat([queries, keys]), return_inverse=True)
    slots = functional.pad(numbers.diff().clamp(max=reach).cumsum(0), (1, 0))[index]
    return slots[: queries.shape[0]], slots[queries.shape[0] :]


def cut_pieces(slots: Tensor, chunk: int, real: Tensor | None) -> Pieces:
    """Cut a row of slots (L,) at each border and every `chunk` positions after one; real (L,) bool."""
    length, device = slots.shape[0], slots.device
    position = torch.arange(length, device=device)
    border = functional.pad(slots[1:] != slots[:-1], (1, 0), value=True)  # (L,)
    offset = position - position.masked_fill(~border, 0).cummax(0).values  # (L,), place in the segment
    begins = offset % chunk == 0  # (L,)
    start = begins.nonzero().flatten()  # (P,)
    size = torch.cat([start, start.new_tensor([length])]).diff()  # (P,)
    steps = torch.arange(chunk, device=device)
    positions = (start[:, None] + steps).clamp(max=length - 1)  # (P, C)
    valid = steps < size[:, None]  # (P, C)
    there = valid if real is None else valid & real[positions]
    slot = slots[start]
    jump = functional.pad(slot.diff() != 1, (1, 0))
    lists = ((size < chunk).tolist(), jump.tolist(), (~there.all(1)).tolist())
    shorter, jumps, lacking = (list(accumulate(x)) for x in lists)
    return Pieces(
        start=start,
        slot=slot,
        positions=positions,
        valid=valid,
        there=there,
        place=(begins.cumsum(0) - 1) * chunk + offset % chunk,
        starts=[*start.tolist(), length],
        slots=slot.tolist(),
        shorter=[0, *shorter],
        jumps=jumps,
        lacking=[0, *lacking],
    )


def plan_states(
    query_segments: Tensor,
    key_segments: Tensor,
    key_mask: Tensor | None,
    reach: int,
    causal: bool,
    far_tokens: float,
    chunks: tuple[int, int],
    heads: int,
    places: int,
    dtype: torch.dtype,
) -> StatePlan:
    """Plan for clean segments (B, L_Q), (B, L_K), in pieces of at most `chunks` queries and keys.

    places  how many positions of all heads that are worked on together a step may have
    """
    group = max(_GROUP, 2 * (reach - 1))
    offset = group if causal else group // 2
    together = max(1, min(heads, places // (4 * query_segments.shape[1])))  # one head alone takes the shortest way
    rows = []
    for row in range(query_segments.shape[0]):
        real = None if key_mask is None else key_mask[row]
        query_slots, key_slots = make_slots(query_segments[row], key_segments[row], reach)
        keys = cut_pieces(key_slots, chunks[1], real)
        queries = keys if causal else cut_pieces(query_slots, chunks[0], None)
        most = places // together
        steps, rest = _make_steps(queries, keys, group, offset, causal, most)
        scale = _scale(key_slots, real, (queries.slots[-1] // group + 1) * group, reach, causal, far_tokens, dtype)
        rows.append(RowPlan(queries, keys, steps, rest, scale, key_slots, real))
    return StatePlan(rows, group, offset, together)


def _make_steps(
    queries: Pieces, keys: Pieces, group: int, offset: int, causal: bool, places: int
) -> tuple[list[Step], list[tuple[int, int]]]:
    most, most_keys = max(1, places // queries.chunk), max(1, places // keys.chunk)
    if most > group:
        most -= most % group  # so that steps end with a group, if each piece is a segment
    most_slots = group * max(1, places // (32 * group))  # a state has as many numbers as many positions
    steps: list[Step] = []
    first, read, low, total = 0, 0, 0, len(queries.slots)
    while first < total:
        begin = queries.slots[first] // group
        last = min(first + most, bisect_left(queries.slots, begin * group + most_slots))
        high = queries.slots[last - 1] // group + 2
        end = last if causal else bisect_left(keys.slots, high * group - offset)
        blocks = [(first, last)] if causal else _blocks(read, end, most_keys)
        low = min(begin, steps[-1].high) if steps else 0
        steps.append(Step(first, last, blocks, low, high, begin))
        first, read = last, end
    return steps, _blocks(read, len(keys.slots), most_keys)


def _blocks(first: int, last: int, most: int) -> list[tuple[int, int]]:
    return [(start, min(start + most, last)) for start in range(first, last, most)]


def _scale(
    key_slots: Tensor, real: Tensor | None, slots: int, reach: int, causal: bool, far_tokens: float, dtype: torch.dtype
) -> Tensor:
    """min(1, far_tokens / n) for queries of each slot: (slots,)."""
    ones = torch.ones_like(key_slots) if real is None else real.long()
    total = int(key_slots[-1]) + 1
    before = torch.zeros(total, dtype=torch.long, device=key_slots.device).index_add_(0, key_slots, ones)
    before = functional.pad(before.cumsum(0), (1, 0))  # (total + 1,), keys in the slots before each
    slot = torch.arange(slots, device=key_slots.device)
    far = before[(slot - reach + 1).clamp(0, total)]
    if not causal:
        far = far + before[-1] - before[(slot + reach).clamp(max=total)]
    return far_scale(far, far_tokens, dtype)
