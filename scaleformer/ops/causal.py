"""Causal attention in linear time: chunks, an exclusive prefix of their states, and a window for the relative term.

    sum_{j<=i} phi(q_i).(phi(k_j) + b) U_j  +  sum_{-R<t<=0} phi(q_i).(phi(rel_{t+R}) - b) U_{i+t}     b = phi(rel_0)

U = [V, 1]. The far field is a shift of the keys by b; what the horizon adds to it is a band, added to the scores inside
the chunk, so that one product with the window of U serves both. The state before chunk n is the sum of (phi(K) + b)^T U
over the chunks before it ([Choromanski 2021] prefix sums, [Scaleformer] Algorithm 1, by whole chunks).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.blocks import (
    Block,
    accumulate,
    add_windows,
    blocks_of,
    chunks_of,
    clear_pads,
    diagonals,
    spread,
    store_chunks,
    store_rows,
    table_gradient,
    u_windows,
)
from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.sums import inverse_denominator, sums_gradient


class _Parts(NamedTuple):
    """What forward and backward need of a block of M chunks; Y = M X, W = R - 1 + C."""

    fq: Tensor  # (Y, C, d)
    fk: Tensor  # (Y, C, d), without b
    shifted: Tensor  # (Y, C, d), phi(k) + b
    window: Tensor  # (Y, W, e+1)
    states: Tensor  # (M+1, X, d, e+1), before each chunk and after the last
    scores: Tensor  # (Y, C, W)


def _prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    far: Tensor | None,
    near: Tensor | None,
    key_mask: Tensor | None,
    phi: FeatureMap,
    chunk: int,
    block: Block,
    carry: Tensor,
) -> _Parts:
    batch, heads, dtype, chunks = q.shape[0], q.shape[1], carry.dtype, block.chunks
    head = 0 if near is None else near.shape[1] - 1
    fq = phi(chunks_of(q, block, chunk, dtype))  # (Y, C, d)
    fk = phi(chunks_of(k, block, chunk, dtype))  # (Y, C, d)
    if key_mask is not None:
        clear_pads(fk, key_mask, block, heads)
    shifted = fk if far is None else fk + spread(far, chunks * batch, heads)  # (Y, C, d)
    window = u_windows(v, key_mask, block, chunk, head, 0, 0, dtype).flatten(0, 2)  # (Y, W, e+1)
    states = carry.new_empty(chunks + 1, *carry.shape)
    states[0] = carry
    torch.bmm(shifted.transpose(1, 2), window[:, head:], out=states[1:].flatten(0, 1))  # (Y, d, e+1)
    accumulate(states)
    scores = fq.new_empty(fq.shape[0], chunk, head + chunk)  # (Y, C, W)
    scores[:, :, :head] = 0.0
    causal = scores.new_ones(chunk, chunk).tril()
    torch.mul(fq @ shifted.transpose(1, 2), causal, out=scores[:, :, head:])
    if near is not None:
        diagonals(scores, head + 1).add_(fq @ spread(near, chunks * batch, heads).transpose(1, 2))
    return _Parts(fq, fk, shifted, window, states, scores)


class CausalAttention(torch.autograd.Function):
    """Causal attention, block after block; the backward pass computes each block again, from the state before it."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        far: Tensor | None,
        near: Tensor | None,
        key_mask: Tensor | None,
        phi: FeatureMap,
        chunk: int,
        dtype: torch.dtype,
    ) -> Tensor:
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e); far (1 or H, 1, d); near (1 or H, R, d)."""
        batch, heads, length, d = q.shape
        e = v.shape[3]
        out = v.new_empty(batch, heads, length, e)
        inverse = v.new_empty(batch, heads, length, 1, dtype=dtype)
        blocks = blocks_of(length, chunk, batch * heads * max(d, e), q.device)
        carry = q.new_zeros(batch * heads, d, e + 1, dtype=dtype)
        states = carry.new_empty(len(blocks), *carry.shape)
        for number, block in enumerate(blocks):
            states[number] = carry
            parts = _prepare(q, k, v, far, near, key_mask, phi, chunk, block, carry)
            sums = parts.fq @ parts.states[:-1].flatten(0, 1)  # (Y, C, e+1)
            sums.baddbmm_(parts.scores, parts.window)
            block_inverse = inverse_denominator(sums)
            store_chunks(inverse, block_inverse, block)
            store_chunks(out, sums[..., :e] * block_inverse, block)
            carry = parts.states[-1]
        kept = parts if len(blocks) == 1 else ()  # little enough to keep
        ctx.save_for_backward(q, k, v, far, near, key_mask, out, inverse, states, *kept)
        ctx.options = phi, chunk, blocks
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, far, near, key_mask, out, inverse, states, *kept = ctx.saved_tensors
        phi, chunk, blocks = ctx.options
        batch, heads, e, dtype = q.shape[0], q.shape[1], v.shape[3], states.dtype
        rows = batch * heads
        head = 0 if near is None else near.shape[1] - 1
        covered = blocks[-1].start + blocks[-1].chunks * chunk
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dk[:, :, covered:], dv[:, :, covered:] = 0.0, 0.0
        d_far = None if far is None else torch.zeros_like(far)  # (1 or H, 1, d)
        d_near = None if near is None else torch.zeros_like(near)  # (1 or H, R, d)
        carry = torch.zeros_like(states[0])  # (X, d, e+1), the gradient of the state after the block
        d_head = states.new_zeros(rows, head, e)  # that of the values before the block after, which its window has
        for number in range(len(blocks) - 1, -1, -1):
            block = blocks[number]
            chunks = block.chunks
            if kept:
                p = _Parts(*kept)
            else:
                p = _prepare(q, k, v, far, near, key_mask, phi, chunk, block, states[number])
            d_sums = sums_gradient(*(chunks_of(x, block, chunk, dtype) for x in (grad, out, inverse)))  # (Y, C, e+1)

            d_states = states.new_empty(chunks + 1, *carry.shape)  # of the states before each chunk and after the last
            torch.bmm(p.fq.transpose(1, 2), d_sums, out=d_states[:-1].flatten(0, 1))
            d_states[-1] = carry
            accumulate(d_states, reverse=True)
            carry, d_after = d_states[0], d_states[1:].flatten(0, 1)  # (X, d, e+1), (Y, d, e+1)

            d_scores = d_sums @ p.window.transpose(1, 2)  # (Y, C, W)
            d_inner = d_scores[:, :, head:] * d_scores.new_ones(chunk, chunk).tril()  # (Y, C, C)
            d_fq = d_inner @ p.shifted  # (Y, C, d)
            d_fq.baddbmm_(d_sums, p.states[:-1].flatten(0, 1).transpose(1, 2))
            d_fk = d_inner.transpose(1, 2) @ p.fq  # (Y, C, d)
            d_fk.baddbmm_(p.window[:, head:], d_after.transpose(1, 2))
            if near is not None:
                assert d_near is not None
                assert d_far is not None
                d_by_distance = diagonals(d_scores, head + 1).contiguous()  # (Y, C, R)
                d_fq.baddbmm_(d_by_distance, spread(near, chunks * batch, heads))
                d_near += table_gradient(d_by_distance, p.fq, near)
                d_far += d_fk.sum(1, keepdim=True).unflatten(0, (-1, far.shape[0])).sum(0)
            store_chunks(dq, d_fq.mul_(phi.slope_of_value(p.fq)), block)
            store_chunks(dk, d_fk.mul_(phi.slope_of_value(p.fk)), block)

            d_window = (p.scores.transpose(1, 2) @ d_sums[..., :e]).unflatten(0, (chunks, rows))  # (M, X, W, e)
            d_values = (p.shifted @ d_after[..., :e]).unflatten(0, (chunks, rows))  # (M, X, C, e)
            total = d_values.new_zeros(rows, head + chunks * chunk, e)
            total[:, head:].unflatten(1, (chunks, chunk)).copy_(d_values.add_(d_window[:, :, head:]).transpose(0, 1))
            add_windows(total, d_window[:, :, :head].transpose(0, 1), chunk)
            total[:, chunks * chunk :] += d_head
            store_rows(dv, total[:, head:], block.start)
            d_head = total[:, :head]
        if key_mask is not None:
            dv.masked_fill_(~key_mask[:, None, :, None], 0.0)
        return dq, dk, dv, d_far, d_near, None, None, None, None
