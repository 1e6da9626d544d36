"""The plan of attention with recall: the windows of tiles, columns for kept keys, and which queries see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.recall.selection import FarSide
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.segments.tiles import BLOCK, Numbers, TileGroup, TilePlan, fill_up, number_segments, plan_tiles


class FarColumns(NamedTuple):
    """The columns of a group whose keys may be far from its queries on one side.

    pairs (m, 1, n, w) 1 where a key is far from a segment of the queries on this side
    """

    columns: slice
    pairs: Tensor


class QuerySegments(NamedTuple):
    """The segments of a group's queries, n in each tile, counted from the segment of the first query.

    first     (m,) the number of that segment
    inside    (m, T, n) 1 where a query is in a segment
    distance  (n, S) from a segment to a slot of the group, plus N + 1; 2N + 3 for the last slot
    far       by side
    """

    first: Tensor
    inside: Tensor
    distance: Tensor
    far: list[FarColumns]


@dataclass(frozen=True)
class RecallPlan:
    """Windows whose groups have columns for kept keys, before and after the keys of the window.

    room      blocks of such columns on either side; 0, without sides, where nothing is far
    asked     the segments of each group's queries
    numbers   of segments, from 0 on
    segments  (B, L_K) of the keys, as given
    """

    tiles: TilePlan
    room: int
    sides: list[FarSide]
    asked: list[QuerySegments]
    numbers: Numbers
    segments: Tensor


def plan_recall(
    layout: SegmentLayout,
    near: int,
    causal: bool,
    horizon: int | None,
    count: int,
    heads: int,
    dtype: torch.dtype,
) -> RecallPlan:
    """The plan for `count` keys kept on each side; other arguments as in `plan_tiles`. Computed once for a layout."""

    def make() -> RecallPlan:
        queries, keys = layout.clean(causal)
        numbers = number_segments(queries, keys, near + 1)
        tiles = plan_tiles(numbers, layout.real(), near, causal, horizon, heads, dtype)
        far = numbers.total > near + 1
        room, sides = (-(-count // BLOCK), _sides(numbers, tiles, near, count)) if far else (0, [])
        own = fill_up(numbers.queries, tiles.queries).flatten(0, 1)  # (M, T)
        groups = [_with_room(group, room, len(sides)) for group in tiles.groups]
        asked = [_asked(group, own[group.tiles], near, len(sides)) for group in groups]
        return RecallPlan(replace(tiles, groups=groups), room, sides, asked, numbers, keys)

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
        FarSide(bool(side), far, outside, on_cpu and bool((far <= count).all()))
        for side, (far, outside) in enumerate(ends)
    ]


def _with_room(group: TileGroup, room: int, sides: int) -> TileGroup:
    """The group with columns for kept keys, in the slots before and after all segments of the window."""
    if room == 0:
        return group
    kept = group.slot.new_zeros(*group.slot.shape[:2], room * BLOCK)  # (m, S, n)
    first, last = kept.clone(), kept
    first[:, 0], last[:, -2] = 1, 1
    slot = torch.cat([first, group.slot, last][: sides + 1], dim=2)  # (m, S, W)
    ahead, before, after = (x + kept.shape[2] for x in (group.ahead, group.before, group.after))
    return group._replace(slot=slot, width=slot.shape[2], ahead=ahead, before=before, after=after)


def _asked(group: TileGroup, own: Tensor, near: int, sides: int) -> QuerySegments:
    """The segments of a group whose queries have the segment numbers `own` (m, T)."""
    slots, dtype, reach = group.slot.shape[1], group.slot.dtype, near + 1
    number = torch.arange(slots - 3 - 2 * near, device=own.device)  # (n,)
    inside = (own[..., None] - own[:, :1, None] == number).to(dtype)  # (m, T, n)
    # The window begins `near` segments before that of the first query, in the second slot.
    distance = torch.arange(slots, device=own.device) - 1 - near - number[:, None]  # (n, S)
    distance = distance.clamp(-reach, reach) + reach
    distance[:, -1] = 2 * reach + 1
    columns = [slice(0, group.before), slice(group.after, group.width)][:sides]
    far = [
        FarColumns(part, ((distance == beyond).to(dtype) @ group.slot[..., part]).unsqueeze(1))
        for part, beyond in zip(columns, (0, 2 * reach), strict=False)
    ]
    return QuerySegments(own[:, 0], inside, distance, far)
