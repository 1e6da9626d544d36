"""The plan of attention with recall: the windows of tiles, columns for kept keys, and which queries see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.recall.selection import FarSide, ends_of
from scaleformer.ops.segments.gate import HIDDEN
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.segments.tiles import BLOCK, Numbers, TileGroup, TilePlan, fill_up, number_segments, plan_tiles


class FarColumns(NamedTuple):
    """The columns of a group whose keys may be far from its queries on one side.

    pairs (m, 1, n, w) 1 where a key is far from a segment of the queries on this side
    mask  the same as bool
    """

    columns: slice
    pairs: Tensor
    mask: Tensor


class QuerySegments(NamedTuple):
    """The segments of a group's queries, n in each tile, counted from the segment of the first query.

    row       (m, 1) the row of each tile
    number    (m, n) the number of each segment; that of the row's last where a tile has fewer
    inside    (m, H, T, n) 1 where a query is in a segment, a view for all heads
    distance  (n, S) from a segment to a slot of the group, plus N + 1; 2N + 3 for the last slot
    far       by side
    """

    row: Tensor
    number: Tensor
    inside: Tensor
    distance: Tensor
    far: list[FarColumns]


class DenseSegments(NamedTuple):
    """All pairs of a segment of queries and a key, for scores of all pairs; n segments.

    column  (B, n, S) of the gate: the distance from the segment to the key, plus N + 1
    far     (B, 1, n, S) 1 where it is beyond N
    beyond  (B, 1, n, S) bool by side, where it is beyond N on that side
    inside  (B H, L, n) 1 where a query is in a segment
    """

    column: Tensor
    far: Tensor
    beyond: list[Tensor]
    inside: Tensor


@dataclass(frozen=True)
class RecallPlan:
    """Windows whose groups have columns for kept keys, before and after the keys of the window. Copies of these keys
    follow all others, by tile, head and side.

    room      blocks of such columns on either side; 0, without sides, where nothing is far
    head      (B, H, 1, 1) the first row of keys of each head, among all rows
    queries   the segments of each group's queries
    numbers   of segments, from 0 on
    segments  (B, L_K) of the keys, as given
    reach     N + 1
    real      (B, L_K) bool, True for a real key; None if all are
    alone     whether no query sees another segment than its own
    """

    tiles: TilePlan
    room: int
    head: Tensor
    sides: list[FarSide]
    queries: list[QuerySegments]
    numbers: Numbers
    segments: Tensor
    reach: int
    real: Tensor | None
    alone: bool

    @cached_property
    def own(self) -> tuple[Tensor, Tensor | None] | None:
        """If `alone`: (B, 1, L, S) `HIDDEN` where a query does not see a key, else 0; and (B, 1, L, 1) bool, whether it
        sees any, or None if all do."""
        if not self.alone:
            return None
        seen = self.numbers.queries[:, :, None] == self.numbers.keys[:, None]  # (B, L, S)
        if self.real is not None:
            seen &= self.real[:, None]
        if self.tiles.causal:
            seen.tril_()
        hidden = torch.zeros_like(seen, dtype=self.tiles.later.dtype).masked_fill_(~seen, HIDDEN)
        any_key = seen.any(-1)
        return hidden[:, None], None if bool(any_key.all()) else any_key[:, None, :, None]

    @cached_property
    def dense(self) -> DenseSegments:
        dtype, number = self.tiles.later.dtype, torch.arange(self.numbers.total, device=self.segments.device)
        distance = (self.numbers.keys[:, None] - number[:, None]).clamp(-self.reach, self.reach)  # (B, n, S)
        beyond = [(distance == end)[:, None] for end in (-self.reach, self.reach)]
        inside = (self.numbers.queries[..., None] == number).to(dtype)  # (B, L, n)
        inside = inside[:, None].expand(-1, self.head.shape[1], -1, -1).flatten(0, 1)
        return DenseSegments(distance + self.reach, (beyond[0] | beyond[1]).to(dtype), beyond, inside)


def plan_recall(
    layout: SegmentLayout, near: int, causal: bool, horizon: int | None, count: int, heads: int, dtype: torch.dtype
) -> RecallPlan:
    """The plan for `count` keys kept on each side; other arguments as in `plan_tiles`. Computed once for a layout."""

    def make() -> RecallPlan:
        queries, keys = layout.clean(causal)
        numbers = number_segments(queries, keys, near + 1)
        tiles = plan_tiles(numbers, layout.real(), near, causal, horizon, heads, dtype)
        far = count > 0 and numbers.total > near + 1
        room, sides = (-(-count // BLOCK), _sides(numbers, tiles, near, count)) if far else (0, [])
        own = fill_up(numbers.queries, tiles.queries)  # (B, tiles, T)
        batch, each, _ = own.shape
        head = torch.arange(batch * heads, device=own.device).view(batch, heads, 1, 1)
        copies = batch * heads * tiles.blocks  # the first block of these
        groups = [_with_room(group, room, len(sides), copies) for group in tiles.groups]
        by_group = [
            _query(group, group.tiles[:, None] // each, own.flatten(0, 1)[group.tiles], near, len(sides), numbers.total)
            for group in groups
        ]
        head = (head * tiles.blocks + 1) * BLOCK
        return RecallPlan(
            replace(tiles, groups=groups), room, head, sides, by_group, numbers, keys, near + 1, layout.real(),
            near + count == 0,
        )  # fmt: skip

    return layout.derived(("recall", near, causal, horizon, count, heads, dtype), make)


def _sides(numbers: Numbers, tiles: TilePlan, near: int, count: int) -> list[FarSide]:
    """The far keys before the queries and, unless causal, those after them."""
    batch, length = numbers.keys.shape
    number = torch.arange(numbers.total, device=numbers.keys.device).expand(batch, -1).contiguous()
    before, after = (
        (x.view(batch, -1) * BLOCK).clamp(max=length) for x in (tiles.low, tiles.high)
    )  # (B, tiles): first and end of each tile's window
    ends = [(torch.searchsorted(numbers.keys, number - near), before)]
    if not tiles.causal:
        end = torch.searchsorted(numbers.keys, number + near, right=True)
        ends.append((length - end, length - after))
    on_cpu = number.device.type == "cpu"  # on a GPU this would synchronise
    return [
        FarSide(bool(side), ends_of(far, length), ends_of(outside, length), on_cpu and bool((far <= count).all()))
        for side, (far, outside) in enumerate(ends)
    ]


def _with_room(group: TileGroup, room: int, sides: int, copies: int) -> TileGroup:
    """The group with columns for kept keys, in the slots before and after all segments of the window. Their blocks are
    numbered from `copies` on."""
    if room == 0:
        return group
    kept = group.slot.new_zeros(*group.slot.shape[:2], room * BLOCK)  # (m, S, n)
    first, last = kept.clone(), kept
    first[:, 0], last[:, -2] = 1, 1
    slot = torch.cat([first, group.slot, last][: sides + 1], dim=2)  # (m, S, W)
    head = torch.arange(group.blocks.shape[1], device=kept.device)
    start = (group.tiles[:, None] * len(head) + head)[..., None] * (sides * room) + copies  # (m, H, 1)
    own = [start + torch.arange(side * room, (side + 1) * room, device=kept.device) for side in range(sides)]
    blocks = torch.cat([own[0], group.blocks, *own[1:]], dim=2)  # (m, H, W / 32)
    ahead, before, after = (x + kept.shape[2] for x in (group.ahead, group.before, group.after))
    return group._replace(blocks=blocks, slot=slot, width=slot.shape[2], ahead=ahead, before=before, after=after)


def _query(group: TileGroup, row: Tensor, own: Tensor, near: int, sides: int, total: int) -> QuerySegments:
    """The segments of a group with tiles in `row` (m, 1) and queries in segments `own` (m, T), all below `total`."""
    slots, dtype, reach = group.slot.shape[1], group.slot.dtype, near + 1
    number = torch.arange(slots - 3 - 2 * near, device=own.device)  # (n,)
    inside = (own[..., None] - own[:, :1, None] == number).to(dtype)  # (m, T, n)
    inside = inside[:, None].expand(-1, group.blocks.shape[1], -1, -1)  # (m, H, T, n)
    # The window begins `near` segments before that of the first query, in the second slot.
    distance = torch.arange(slots, device=own.device) - 1 - near - number[:, None]  # (n, S)
    distance = distance.clamp(-reach, reach) + reach
    distance[:, -1] = 2 * reach + 1
    columns = [slice(0, group.before), slice(group.after, group.width)][:sides]
    pairs = [
        ((distance == beyond).to(dtype) @ group.slot[..., part]).unsqueeze(1)
        for part, beyond in zip(columns, (0, 2 * reach), strict=False)
    ]
    far = [FarColumns(part, x, x > 0) for part, x in zip(columns, pairs, strict=True)]
    return QuerySegments(row, (own[:, :1] + number).clamp(max=total - 1), inside, distance, far)
