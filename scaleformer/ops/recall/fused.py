"""Attention with recall by kernels of Triton: a handful of launches in place of some hundred operator calls.

The numbers are those of the other forms. Nothing in it waits for the device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.recall.choosing_kernels import LOWEST, choose_kernel, top_kernel
from scaleformer.ops.recall.kernels import NO_KEY, backward_kernel, forward_kernel
from scaleformer.ops.segments.layout import SegmentLayout

TILE = 64  # queries of a program
READ = 32  # keys read together
_LAUNCH = {"num_warps": 4, "num_stages": 1}  # steps prepared ahead would need more registers than there are
_CHUNK = 1024  # keys among which the kept ones are sought together
_RUN = 16  # queries whose segments a program of the choice looks at


class FusedPlan(NamedTuple):
    """What the kernels know of the segments, int32: sides before and, unless causal, after.

    query_segments  (B, L)
    key_segments    (B, S), NO_KEY at pads
    first_query     (B, L) the first query of the same segment
    far             (sides, B, L) how many keys are far from a query
    outside         (sides, B, tiles) how many keys are outside a tile's window
    windows         (B, tiles, 2) the first key near any query of a tile, and the end of these
    """

    query_segments: Tensor
    key_segments: Tensor
    first_query: Tensor
    far: Tensor
    outside: Tensor
    windows: Tensor


def plan_fused(layout: SegmentLayout, near: int, causal: bool) -> FusedPlan:
    """Computed once for a layout."""

    def make() -> FusedPlan:
        queries, keys = layout.clean(causal)  # (B, L), (B, S)
        real, length = layout.real(), keys.shape[1]
        position = torch.arange(queries.shape[1], device=queries.device)
        border = torch.ones_like(queries, dtype=torch.bool)
        border[:, 1:] = queries[:, 1:] != queries[:, :-1]
        first = torch.where(border, position, 0).cummax(1).values  # (B, L)
        before = torch.searchsorted(keys, queries - near)  # (B, L)
        end = torch.searchsorted(keys, queries + near, right=True)
        last = (position[::TILE] + TILE - 1).clamp(max=queries.shape[1] - 1)  # the last query of each tile
        low, high = before[:, ::TILE], end[:, last]  # (B, tiles)
        far, outside = [before], [low]
        if causal:
            high = torch.minimum(high, last + 1)
        else:
            far, outside = [before, length - end], [low, length - high]
        if real is not None:  # skip the pads at the end of a row
            stop = (real * torch.arange(1, length + 1, device=keys.device)).amax(1, keepdim=True)  # (B, 1)
            high = torch.minimum(high, stop)
        base = keys[:, :1]  # so that the numbers fit
        numbers = (keys - base).int() if real is None else (keys - base).int().masked_fill_(~real, NO_KEY)
        return FusedPlan(
            query_segments=(queries - base).int(),
            key_segments=numbers,
            first_query=first.int(),
            far=torch.stack(far).int(),
            outside=torch.stack(outside).int(),
            windows=torch.stack([low, high], dim=2).int(),
        )

    return layout.derived(("fused", near, causal), make)


def choose_keys(priorities: Tensor, plan: FusedPlan, heads: int, count: int) -> tuple[Tensor, Tensor]:
    """The limits (sides, B, H, L, 2) and the lists (B, H, tiles, columns) of the kept keys, `count` a side, for the
    kernels; priorities (sides, B, H, S), minus infinity at pads."""
    sides, batch, _, length = priorities.shape
    queries, tiles = plan.query_segments.shape[1], plan.windows.shape[1]
    if count == 0:  # limits that no key has
        limits = plan.windows.new_full((sides, batch, heads, queries, 2), torch.iinfo(torch.int32).max)
        return limits, limits.new_empty(batch, heads, tiles, 0)
    rows, heads_of_all = sides * batch * heads, batch * heads
    chunk = _CHUNK if length > _CHUNK // 4 else _CHUNK // 4
    chunks = -(-length // chunk)
    places = max(length.bit_length(), 1)
    columns = -(-sides * count // READ) * READ
    empty = priorities.new_empty
    limits = empty(sides, batch, heads, queries, 2, dtype=torch.int32)
    kept = torch.full((batch, heads, tiles, columns), -1, dtype=torch.int32, device=priorities.device)
    tops, joined = limits, 1
    if chunks > 1:
        joined = max(triton.next_power_of_2((chunks - 1) * count), 512)  # few sizes, since each is compiled
        tops = torch.full((2, rows, chunks, count), LOWEST, dtype=torch.int32, device=priorities.device)
        top_kernel[(chunks, rows)](
            priorities, tops, length, chunks, heads_of_all, places, E=count, CHUNK=chunk, num_warps=1
        )
    choose_kernel[(tiles + -(-queries // _RUN), rows)](
        priorities, tops, plan.far, plan.outside, plan.first_query, limits, kept,
        length, queries, chunks, heads_of_all, heads, columns,
        places, E=count, CHUNK=chunk, TOPS=joined, T=TILE, RUN=_RUN, num_warps=1 if joined <= 1024 else 4,
    )  # fmt: skip
    return limits, kept


class FusedRecall(torch.autograd.Function):
    """One softmax over the near keys and the kept far keys."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, salience: Tensor, log_gate: Tensor, by_distance: Tensor | None,
        priorities: Tensor, plan: FusedPlan, count: int, causal: bool,
    ) -> Tensor:  # fmt: skip
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e); fp32: salience (B, H, S), log_gate (H, 2N+3), by_distance
        (B, H, L, R or 2R) products of the queries with `score_table`, divided by sqrt(d), or None; priorities (sides,
        B, H, S), minus infinity at pads; result (B, H, L, e) in the dtype of v"""
        batch, heads, queries, _ = q.shape
        q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
        salience, log_gate, priorities = (x.contiguous() for x in (salience, log_gate, priorities))
        limits, kept = choose_keys(priorities, plan, heads, count)
        out = v.new_empty(batch, queries, heads, v.shape[3])
        log_total = salience.new_empty(batch, heads, queries)
        tensors = [q, k, v, salience, log_gate, by_distance, priorities, limits, kept]
        grid, arguments, sizes = _call(tensors, plan, causal)
        forward_kernel[grid](*arguments, out, log_total, *sizes[0], **sizes[1], **_LAUNCH)
        ctx.save_for_backward(*tensors, out, log_total)
        ctx.plan, ctx.causal = plan, causal
        return out.transpose(1, 2)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *tensors, out, log_total = ctx.saved_tensors
        q, k, v, salience, log_gate, by_distance, *_ = tensors
        batch, heads, queries, d = q.shape
        length, e = v.shape[2:]
        grad = grad.to(v.dtype)
        grad = grad if grad.stride(3) == 1 else grad.contiguous()
        d_q = torch.empty(batch, queries, heads, d, dtype=q.dtype, device=q.device)
        d_pairs = torch.zeros(batch * length * heads * (d + e) + salience.numel(), device=q.device)
        d_k, d_v, d_salience = d_pairs.split([batch * length * heads * n for n in (d, e, 1)])
        d_bias = None if by_distance is None else torch.zeros_like(by_distance)
        gates = max(triton.next_power_of_2(log_gate.shape[1]), 16)
        grid, arguments, (numbers, constants) = _call(tensors, ctx.plan, ctx.causal)
        d_gate = salience.new_empty(batch, heads, grid[0], gates)
        backward_kernel[grid](
            *arguments, out, log_total, grad, d_q, d_k, d_v, d_salience, d_gate,
            d_salience if d_bias is None else d_bias, *numbers, *grad.stride()[:3],
            GATES=gates, **constants, **_LAUNCH,
        )  # fmt: skip
        d_k, d_v = d_k.view(batch, length, heads, d).to(k.dtype), d_v.view(batch, length, heads, e).to(v.dtype)
        d_q, d_k, d_v = (x.transpose(1, 2) for x in (d_q, d_k, d_v))
        d_gate = d_gate.sum((0, 2))[:, : log_gate.shape[1]]
        return d_q, d_k, d_v, d_salience.view_as(salience), d_gate, d_bias, None, None, None, None


def _call(
    tensors: list[Any], plan: FusedPlan, causal: bool
) -> tuple[tuple[int, int], list[Any], tuple[list[Any], dict[str, Any]]]:
    """The grid, the tensors, and the numbers and constants of both kernels."""
    q, k, v, salience, log_gate, by_distance, priorities, limits, kept = tensors
    batch, heads, queries, d = q.shape
    length, e = v.shape[2:]
    reach = 0 if by_distance is None else by_distance.shape[3] // (1 if causal else 2)
    arguments = [
        q, k, v, salience, log_gate, by_distance if by_distance is not None else salience,
        plan.query_segments, plan.key_segments, plan.first_query, priorities, limits, plan.windows, kept,
    ]  # fmt: skip
    sides = batch * heads * length, batch * heads * queries * 2
    numbers = [d**-0.5, queries, length, *sides, kept.shape[3], *(n for x in (q, k, v) for n in x.stride()[:3])]
    constants = {
        "H": heads, "D": d, "E": e, "D_PADDED": max(triton.next_power_of_2(d), 16),
        "E_PADDED": max(triton.next_power_of_2(e), 16), "N": log_gate.shape[1] // 2 - 1, "R": reach, "CAUSAL": causal,
        "T": TILE, "J": READ, "PRECISION": "ieee" if q.dtype == torch.float32 else "tf32",
    }  # fmt: skip
    return (plan.windows.shape[1], batch * heads), arguments, (numbers, constants)


def fused_recall(
    q: Tensor, k: Tensor, v: Tensor, salience: Tensor, log_gate: Tensor, table: Tensor | None, priority: Tensor,
    recency: Tensor, layout: SegmentLayout, count: int, causal: bool,
) -> Tensor:  # fmt: skip
    """q, k, v in the dtype of the products, others in fp32: salience (B, H, S), log_gate (H, 2N+3), table (1 or H, R or
    2R, d) of `score_table` or None, priority (B, H, S) without recency (H,); `count` keys kept a side."""
    plan = plan_fused(layout, log_gate.shape[1] // 2 - 1, causal)
    toward = recency[:, None] * layout.clean(causal)[1][:, None].to(recency.dtype)  # (B, H, S)
    priorities = torch.stack([priority + toward] if causal else [priority + toward, priority - toward])
    real = layout.real()
    if real is not None:
        priorities = priorities.masked_fill_(~real[:, None], float("-inf"))
    by_distance = None
    if table is not None:
        by_distance = (q.to(table.dtype) @ table.transpose(-1, -2)) * q.shape[3] ** -0.5  # (B, H, L, R or 2R)
    out: Tensor = FusedRecall.apply(q, k, v, salience, log_gate, by_distance, priorities, plan, count, causal)
    return out
