"""Where segments lie, for attention with recall: the windows of hybrid attention, and room for what is kept in mind."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from scaleformer.ops.hybrid_plan import BLOCK, Step, TilePlan, number_segments, plan_tiles
from scaleformer.ops.recall_sets import Side
from scaleformer.ops.segment_plan import clean_segments


@dataclass(frozen=True)
class Far:
    """The keys of a step that may be far from its queries on one side: part of its columns.

    pairs (m, 1, T, w) 1 where a key is far from a query on this side
    """

    columns: slice
    pairs: Tensor


@dataclass(frozen=True)
class RecallPlan:
    """Windows whose steps have columns for what is kept: before the keys of the window, and behind them.

    room      of how many blocks, on either side; 0 and no sides where nothing is far
    far       of each step, by side
    queries   (B, L_Q) segment numbers, and keys (B, L_K), from 0 on
    total     how many numbers there are
    segments  (B, L_K) of the keys, as they were given
    """

    windows: TilePlan
    room: int
    sides: list[Side]
    far: list[list[Far]]
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
    if plan.scale is None:
        return RecallPlan(plan, 0, [], [[] for _ in plan.steps], *numbers, segments)
    length = numbers.keys.shape[1]
    number = torch.arange(numbers.total, device=segments.device).expand(len(segments), -1).contiguous()
    low, high = (x.view(len(segments), -1) % plan.blocks for x in (plan.before, plan.after))  # (B, tiles)
    before, behind = ((x * BLOCK).clamp(max=length) for x in (low - 1, high))
    sides = [Side(False, torch.searchsorted(numbers.keys, number - near), before)]
    if not causal:
        end = torch.searchsorted(numbers.keys, number + near, right=True)
        sides.append(Side(True, length - end, length - behind))
    room = -(-count // BLOCK)
    made = [_with_room(step, room, (0, 2 * near + 2)[: len(sides)]) for step in plan.steps]
    windows = replace(plan, steps=[step for step, _ in made])
    return RecallPlan(windows, room, sides, [far for _, far in made], *numbers, segments)


def _with_room(step: Step, room: int, beyond: tuple[int, ...]) -> tuple[Step, list[Far]]:
    """The step with columns for what is kept, and what is far in it by side; beyond: the distance of that, G added.

    What is kept counts to the slots before and after all segments of the window.
    """
    width = step.width // BLOCK
    kept = step.slot.new_zeros(*step.slot.shape[:2], room * BLOCK)  # (m, S, n)
    first, last = kept.clone(), kept
    first[:, 0], last[:, -2] = 1, 1
    slot = torch.cat([first, step.slot, last][: len(beyond) + 1], dim=2)  # (m, S, W)
    left = next((end for start, end in step.edges if start == 0), 0)
    right = next((start for start, end in step.edges if end == width), width)
    columns = slice(0, (room + left) * BLOCK), slice((room + right) * BLOCK, slot.shape[2])
    far = [
        Far(part, torch.bmm((step.distance == distance).to(slot.dtype), slot[..., part]).unsqueeze(1))
        for part, distance in zip(columns, beyond, strict=False)
    ]
    return step._replace(slot=slot, width=slot.shape[2], ahead=step.ahead + room * BLOCK), far
