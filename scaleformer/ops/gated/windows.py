"""Segment-gated attention in linear time by windows: for short segments.

Near keys, less than G segments away, are few when segments are short: each chunk of queries scores a window of whole
chunks of keys that has all of them, one by one, with the gate as a factor. What lies before the window and after it is
far to every query of the chunk, and so one state serves: the sums of phi(K) (x) U over it, weighed by the outer gates,
times the scale of the query. The relative term shifts the keys before the own chunk by b = phi(rel_0) and those after
it by a = phi(rel_2R); a band adds the horizon, as in `causal` and `bidirectional`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.blocks import Block, accumulate, chunks_of, diagonals, spread, store_chunks, table_gradient
from scaleformer.ops.common.relative_positions import bidirectional_table, causal_tables
from scaleformer.ops.common.sums import inverse_denominator, sums_gradient
from scaleformer.ops.gated.window_blocks import WindowOptions, WindowWork
from scaleformer.ops.gated.window_plan import WindowBlock


class WindowAttention(torch.autograd.Function):
    """Segment-gated attention by windows; the backward pass computes each block again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        shifts: Tensor | None,
        table: Tensor | None,
        log_gate: Tensor,
        key_mask: Tensor | None,
        options: WindowOptions,
    ) -> Tensor:
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e), log_gate (H, 2G+1) of the type of the sums.

        Without relative positions shifts and table are None. Causal: shifts (1, 1 or H, 1, d), b, and table
        (1 or H, R, d) for the distances -R+1 to 0. Else shifts (2, 1 or H, 1, d), b and a, and table (1 or H, 2R, d)
        for -R+1 to R-1, and last a - b.
        """
        work = WindowWork(q, k, v, shifts, table, log_gate, key_mask, options)
        e = v.shape[3]
        trained = any(ctx.needs_input_grad)
        out = v.new_empty(*q.shape[:3], e, dtype=options.dtype if trained else v.dtype)  # backward needs it exactly
        inverse = v.new_empty(*q.shape[:3], 1, dtype=options.dtype)
        for block in options.plan.blocks:
            p = work.prepare(block)
            sums = (p.far_fq @ p.far).baddbmm_(p.scores, p.u)  # (Y, C, e+1)
            block_inverse = inverse_denominator(sums)
            place = Block(block.start * options.chunk, block.chunks)
            store_chunks(inverse, block_inverse, place)
            store_chunks(out, sums[..., :e] * block_inverse, place)
        ctx.save_for_backward(q, k, v, shifts, table, log_gate, key_mask, out, inverse)
        ctx.options = options
        return out.to(v.dtype)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, shifts, table, log_gate, key_mask, out, inverse = ctx.saved_tensors
        options: WindowOptions = ctx.options
        work = WindowWork(q, k, v, shifts, table, log_gate, key_mask, options)
        keys, chunk, dtype, e = work.keys, options.chunk, options.dtype, out.shape[3]
        dq = torch.empty_like(work.q)
        d_shifted = torch.zeros_like(keys.shifted)  # (1 or 2, N+1, X, C, d)
        d_u = keys.u.new_zeros(*keys.u.shape[:3], e)  # (N+1, X, C, e)
        d_sides = [torch.zeros_like(states) for states in keys.sides]  # (N+1, X, d, e+1)
        d_table = None if work.table is None else torch.zeros_like(work.table)
        d_log_gate = torch.zeros_like(work.gate)
        choices = torch.arange(work.gate.shape[1], device=grad.device)
        for block in options.plan.blocks:
            place, p = Block(block.start * chunk, block.chunks), work.prepare(block)
            d_sums = sums_gradient(*(chunks_of(x, place, chunk, dtype) for x in (grad, out, inverse)))  # (Y, C, e+1)
            d_scores = d_sums @ p.u.transpose(1, 2)  # (Y, C, W), of the weighed ones
            by_gate = (d_scores * p.scores).view(block.chunks, work.batch, work.heads, -1)  # (M, B, H, C W)
            chosen = (p.column.flatten(2).unsqueeze(-1) == choices).to(dtype)  # (M, B, C W, 2G+1)
            d_log_gate += (by_gate @ chosen).sum((0, 1))
            d_scores.view(p.weights.shape).mul_(p.weights)

            d_far = p.far_fq.transpose(1, 2) @ d_sums  # (Y, d, e+1)
            for side, (rows, states) in enumerate(zip(work.side_rows(block), p.sides, strict=True)):
                gate = work.gate[:, -side]  # (H,)
                products = torch.bmm(d_far.flatten(1).unsqueeze(1), states.flatten(1).unsqueeze(2))  # (Y, 1, 1)
                d_log_gate[:, -side] += products.view(-1, work.heads).sum(0) * gate
                d_states, by_row = d_sides[side].flatten(0, 1), gate.repeat(block.chunks * work.batch)[:, None, None]
                if isinstance(rows, slice):
                    d_states[rows].addcmul_(d_far, by_row)
                else:
                    d_states.index_add_(0, rows, d_far * by_row)

            d_fq = d_sums @ p.far.transpose(1, 2)  # (Y, C, d)
            d_fq.view(block.chunks, work.batch, work.heads, chunk, -1).mul_(work.scale(block))
            d_fq.baddbmm_(d_scores, p.keys)
            if work.table is not None:
                assert d_table is not None
                d_by_distance = _by_distance(work, block, d_scores)  # (Y, C, R or 2R)
                d_fq.baddbmm_(d_by_distance, spread(work.table, block.chunks * work.batch, work.heads))
                d_table += table_gradient(d_by_distance, p.fq, work.table)
            store_chunks(dq, d_fq.mul_(options.phi.slope_of_value(p.fq)), place)

            key_rows, u_rows = work.window_rows(block)
            d_keys = (d_scores.transpose(1, 2) @ p.fq).view(key_rows.shape[0], -1)  # (Y w, C d)
            d_shifted.flatten(0, 2).flatten(1).index_add_(0, key_rows, d_keys)
            d_values = (p.scores.transpose(1, 2) @ d_sums[..., :e]).view(u_rows.shape[0], -1)  # (Y w, C e)
            d_u.flatten(0, 1).flatten(1).index_add_(0, u_rows, d_values)
        dk, dv, d_shifts = _keys_gradient(work, d_shifted, d_u, d_sides)
        return dq, dk, dv, d_shifts, d_table, d_log_gate, None, None


def _by_distance(work: WindowWork, block: WindowBlock, d_scores: Tensor) -> Tensor:
    """The gradient of the scores by distance, in the order of the table, from that of the scores (Y, C, W)."""
    near = diagonals(d_scores, *work.near_columns(block))  # (Y, C, R or 2R-1)
    if work.options.causal:
        return near.contiguous()
    own = d_scores[:, :, block.own * work.chunk : (block.own + 1) * work.chunk]
    later = (own * own.new_ones(work.chunk, work.chunk).triu(1)).sum(-1, keepdim=True)  # (Y, C, 1)
    return torch.cat([near, later], dim=-1)


def _keys_gradient(
    work: WindowWork, d_shifted: Tensor, d_u: Tensor, d_sides: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of k, v and the shifts from those of what the windows took and of the sums outside them."""
    keys, count, e = work.keys, work.plan.key_chunks, d_u.shape[3]
    # Each chunk is in the sums before all later chunks, and in those of itself and all earlier ones.
    d_states = [accumulate(d_sides[0], reverse=True)[1:]]  # (N, X, d, e+1)
    if not work.options.causal:
        d_states.append(accumulate(d_sides[1])[:-1])
    if keys.shifted.shape[0] == 1 and len(d_states) == 2:
        d_states = [d_states[0] + d_states[1]]
    u, d_values = keys.u[:count].flatten(0, 1), d_u[:count].flatten(0, 1)  # (N X, C, e+1), (N X, C, e)
    d_keys = []
    for kind, d_state in enumerate(d_states):
        d_state = d_state.flatten(0, 1)  # (N X, d, e+1)
        d_keys.append(d_shifted[kind, :count].flatten(0, 1).baddbmm_(u, d_state.transpose(1, 2)))  # (N X, C, d)
        d_values.baddbmm_(keys.shifted[kind, :count].flatten(0, 1), d_state[..., :e])
    d_shifts = None
    if work.shifts is not None:
        summed = [d.sum(1, keepdim=True).unflatten(0, (-1, work.shifts.shape[1])).sum(0) for d in d_keys]
        d_shifts = torch.stack(summed)  # (1 or 2, 1 or H, 1, d)
    d_fk = d_keys[0] if len(d_keys) == 1 else d_keys[0] + d_keys[1]
    dk, dv = torch.empty_like(work.k), torch.empty_like(work.v)
    store_chunks(dk, d_fk.mul_(work.options.phi.slope_of_value(keys.fk)), Block(0, count))
    store_chunks(dv, d_values, Block(0, count))
    if work.key_mask is not None:
        dv.masked_fill_(~work.key_mask[:, None, :, None], 0.0)
    return dk, dv, d_shifts


def window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frel: Tensor | None,
    log_gate: Tensor,
    key_mask: Tensor | None,
    options: WindowOptions,
) -> Tensor:
    """Segment-gated attention by the windows of a plan; frel = phi(rel) (1 or H, 2R+1, d).

    In causal attention k, v and key_mask have the length of q. Returns (B, H, L_Q, e).
    """
    shifts, table = None, None
    if frel is not None and options.causal:
        far, table = causal_tables(frel)
        shifts = far[None]
    elif frel is not None:
        *band, before, after = bidirectional_table(frel).split([frel.shape[1] - 2, 1, 1], dim=1)
        shifts = torch.stack([before, after])
        table = torch.cat([*band, after - before], dim=1)
    out: Tensor = WindowAttention.apply(q, k, v, shifts, table, log_gate, key_mask, options)
    return out
