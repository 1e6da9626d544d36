"""Where segments lie, for attention with recall: the windows of hybrid attention, and room for what is kept in mind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.recall.selection import Side
from scaleformer.ops.segments.layout import clean_segments
from scaleformer.ops.segments.tiles import BLOCK, Step, TilePlan, fill_up, number_segments, plan_tiles


class Far(NamedTuple):
    """The keys of a step that may be far from its queries on one side: part of its columns.

    pairs (m, 1, n, w) 1 where a key is far from a segment of the queries on this side
    """

    columns: slice
    pairs: Tensor


class Asking(NamedTuple):
    """The segments of a step's queries, n in each tile: counted from that of the first query on.

    first     (m,) the number of that one
    inside    (m, T, n) 1 where a query is in a segment
    distance  (n, S) from a segment to a slot of the step, G added; 2G + 1 for the last slot
    far       by side
    """

    first: Tensor
    inside: Tensor
    distance: Tensor
    far: list[Far]


@dataclass(frozen=True)
class RecallPlan:
    """Windows whose steps have columns for what is kept: before the keys of the window, and behind them.

    room      of how many blocks, on either side; 0 and no sides where nothing is far
    asking    of each step
    queries   (B, L_Q) segment numbers, and keys (B, L_K), from 0 on
    total     how many numbers there are
    segments  (B, L_K) of the keys, as they were given
    """

    windows: TilePlan
    room: int
    sides: list[Side]
    asking: list[Asking]
    queries: Tensor
    keys: Tensor
    total: int
    segments: Tensor


def plan_recall(
    query_segments: Tensor,
    key_segments: Tensor,
    key_mask: Tensor | None,
    near: int,
    causal: bool,
    horizon: int | None,
    count: int,
    heads: int,
    dtype: torch.dtype,
) -> RecallPlan:
    """The plan for `count` keys kept on a side; other arguments as in `plan_tiles`."""
    numbers = number_segments(query_segments, key_segments, key_mask, causal, near + 1)
    plan = plan_tiles(numbers, key_mask, near, near + 1, causal, horizon, 1, heads, dtype, hold_horizon=True)
    segments = clean_segments(query_segments, key_segments, key_mask, causal)[1]
    own = fill_up(numbers.queries, plan.queries).flatten(0, 1)  # (M, T)
    most = torch.stack([(own[step.tiles, -1] - own[step.tiles, 0]).max() for step in plan.steps]).tolist()
    far = plan.scale is not None
    room = -(-count // BLOCK) if far else 0
    sides = []
    if far:
        length = numbers.keys.shape[1]
        number = torch.arange(numbers.total, device=segments.device).expand(len(segments), -1).contiguous()
        low, high = (x.view(len(segments), -1) % plan.blocks for x in (plan.before, plan.after))  # (B, tiles)
        before, behind = ((x * BLOCK).clamp(max=length) for x in (low - 1, high))
        sides.append(_side(False, torch.searchsorted(numbers.keys, number - near), before, count))
        if not causal:
            end = torch.searchsorted(numbers.keys, number + near, right=True)
            sides.append(_side(True, length - end, length - behind, count))
    steps, asking = [], []
    for step, last in zip(plan.steps, most, strict=True):
        parts = _parts(step, room, len(sides))
        if far:
            step = _with_room(step, room, len(sides))
        steps.append(step)
        asking.append(_asking(step, own[step.tiles], last + 1, near, parts))
    return RecallPlan(replace(plan, steps=steps), room, sides, asking, *numbers, segments)


def _side(after: bool, ends: Tensor, windows: Tensor, count: int) -> Side:
    all_kept = ends.device.type == "cpu" and bool((ends <= count).all())  # to ask a GPU would be to wait for it
    return Side(after, ends, windows, all_kept)


def _parts(step: Step, room: int, sides: int) -> list[slice]:
    """The columns that may be far from queries, by side, once there is room."""
    width = step.width // BLOCK
    left = next((end for start, end in step.edges if start == 0), 0)
    right = next((start for start, end in step.edges if end == width), width)
    last = width + sides * room
    return [slice(0, (room + left) * BLOCK), slice((room + right) * BLOCK, last * BLOCK)][:sides]


def _with_room(step: Step, room: int, sides: int) -> Step:
    """The step with columns for what is kept, which counts to the slots before and after all segments of the window."""
    kept = step.slot.new_zeros(*step.slot.shape[:2], room * BLOCK)  # (m, S, n)
    first, last = kept.clone(), kept
    first[:, 0], last[:, -2] = 1, 1
    slot = torch.cat([first, step.slot, last][: sides + 1], dim=2)  # (m, S, W)
    return step._replace(slot=slot, width=slot.shape[2], ahead=step.ahead + room * BLOCK)


def _asking(step: Step, own: Tensor, count: int, near: int, parts: list[slice]) -> Asking:
    """What is asked in a step whose queries have the numbers own (m, T), `count` segments in a tile at most."""
    slots, dtype, reach = step.slot.shape[1], step.slot.dtype, near + 1
    number = torch.arange(count, device=own.device)
    inside = (own[..., None] - own[:, :1, None] == number).to(dtype)  # (m, T, n)
    # The window begins `near` segments before the first query's, in the second slot.
    distance = torch.arange(slots, device=own.device) - 1 - near - number[:, None]  # (n, S)
    distance = distance.clamp(-reach, reach) + reach
    distance[:, -1] = 2 * reach + 1
    far = [
        Far(part, ((distance == beyond).to(dtype) @ step.slot[..., part]).unsqueeze(1))
        for part, beyond in zip(parts, (0, 2 * reach), strict=False)
    ]
    return Asking(own[:, 0], inside, distance, far)
