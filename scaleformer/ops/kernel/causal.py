"""Causal attention in linear time: chunks, an exclusive prefix sum of their states, and a window for the relative term.

    sum_{j<=i} phi(q_i).(phi(k_j) + b) U_j  +  sum_{-R<t<=0} phi(q_i).(phi(rel_{t+R}) - b) U_{i+t}     b = phi(rel_0)

U = [V, 1]. The far field shifts all keys by b. Within the horizon, a band is added to the scores inside the chunk, so
that one product with U serves both. For the first R - 1 queries of a chunk, the band reaches into the previous chunk by
a small triangle, the corner. The state before chunk n is the sum of (phi(K) + b)^T U over the chunks before it
([Choromanski 2021] prefix sums, [Scaleformer] Algorithm 1, by whole chunks).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.blocks import (
    Block,
    blocks_of,
    clear_pads,
    diagonals,
    little_enough,
    nth,
    rows_at,
    rows_of,
    running,
    spread,
    store_rows,
    table_gradient,
    u_rows,
)
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import skew
from scaleformer.ops.common.sums import inverse_denominator, sums_gradient


class _Operands(NamedTuple):
    """Operands of the products of a block of M chunks; X = B H, T = M C."""

    fq: Tensor  # (X, T, d)
    fk: Tensor  # (X, T, d), without b
    shifted: Tensor  # (X, T, d), phi(k) + b
    u: Tensor  # (X, T, e+1)


class _Products(NamedTuple):
    """Products of a block that forward and backward use; Y = X M, corners only with a band."""

    states: Tensor  # (X, M, d, e+1), before each chunk
    scores: Tensor  # (Y, C, C)
    corner: Tensor | None  # (Y, R-1, R-1), the scores of the last keys of the chunk before
    tails: Tensor | None  # (X, M, R-1, e+1), U of these keys


class _Carry(NamedTuple):
    """What a block passes on to the next one."""

    state: Tensor  # (X, d, e+1)
    tail: Tensor  # (X, R-1, e+1), the last rows of U


def _operands(
    q: Tensor, k: Tensor, v: Tensor, far: Tensor | None, key_mask: Tensor | None, phi: FeatureMap, chunk: int,
    block: Block, dtype: torch.dtype, once: bool = False,
) -> _Operands:  # fmt: skip
    """The operands of a block; `once` if no backward pass needs fk, which is then overwritten."""
    batch, heads, count = q.shape[0], q.shape[1], block.chunks * chunk
    fq = phi(rows_of(q, block.start, count, dtype)).contiguous()  # (X, T, d)
    fk = phi(rows_of(k, block.start, count, dtype)).contiguous()  # (X, T, d)
    if key_mask is not None:
        clear_pads(fk, key_mask, block.start, heads)
    shifted = fk if far is None else torch.add(fk, spread(far, batch, heads), out=fk if once else None)  # (X, T, d)
    return _Operands(fq, fk, shifted, u_rows(v, key_mask, block.start, count, dtype))


def _products(operands: _Operands, near: Tensor | None, chunk: int, carry: _Carry) -> tuple[_Products, _Carry]:
    """The products of a block, and the carry for the next one."""
    fq, u = operands.fq, operands.u
    by_chunk = [x.view(-1, chunk, x.shape[2]) for x in (fq, operands.shifted, u)]  # (Y, C, ...)
    own = torch.bmm(by_chunk[1].transpose(1, 2), by_chunk[2]).unflatten(0, (fq.shape[0], -1))  # (X, M, d, e+1)
    states, state = running(own, carry.state)
    scores = torch.bmm(by_chunk[0], by_chunk[1].transpose(1, 2))  # (Y, C, C)
    if near is None:
        return _Products(states, scores.tril_(), None, None), _Carry(state, carry.tail)
    copies = fq.shape[0] // near.shape[0]
    by_distance = (fq @ spread(near, copies, near.shape[0]).transpose(1, 2)).view(-1, chunk, near.shape[1])  # (Y, C, R)
    _band(scores, near.shape[1]).add_(by_distance[:, 1:])
    scores[:, 0, 0].add_(by_distance[:, 0, -1])
    scores.tril_()  # also removes the band's entries before the chunk
    head = near.shape[1] - 1
    corner = tails = None
    tail = carry.tail
    if head > 0:
        corner = skew(by_distance[:, :head], 2 * head)[..., :head]  # (Y, R-1, R-1)
        ends = u.unflatten(1, (-1, chunk))[:, :, chunk - head :]  # (X, M, R-1, e+1)
        tails, tail = torch.cat([carry.tail.unsqueeze(1), ends[:, :-1]], dim=1), ends[:, -1].clone()
    return _Products(states, scores, corner, tails), _Carry(state, tail)


def _band(matrix: Tensor, count: int) -> Tensor:
    """View (Y, C-1, R) of square matrices (Y, C, C): the entries [i, i-R+1 .. i] of the rows i from 1 on.

    Entries before the first column are at the end of the row before, above the diagonal: C is at least R - 1.
    """
    items, rows, width = matrix.shape
    assert matrix.is_contiguous()
    assert count <= rows + 1
    offset = matrix.storage_offset() + width + 2 - count
    return matrix.as_strided((items, rows - 1, count), (rows * width, width + 1, 1), offset)


def least_chunk(near: Tensor | None) -> int:
    """The smallest chunk size for which the corner reaches no further than the previous chunk."""
    return 1 if near is None else near.shape[1]


class CausalAttention(torch.autograd.Function):
    """Causal attention, block by block. For long sequences backward recomputes everything but the products."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, far: Tensor | None, near: Tensor | None, key_mask: Tensor | None,
        phi: FeatureMap, chunk: int, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e); far (1 or H, 1, d); near (1 or H, R, d)."""
        batch, heads, length, d = q.shape
        e, rows = v.shape[3], batch * heads
        chunk = max(chunk, least_chunk(near))
        head = 0 if near is None else near.shape[1] - 1
        trained = any(ctx.needs_input_grad)
        out = v.new_empty(batch, heads, length, e, dtype=dtype if trained else v.dtype)  # backward needs it exactly
        inverse = v.new_empty(batch, heads, length, 1, dtype=dtype)
        blocks = blocks_of(length, chunk, rows * max(d, e), q.device)
        carry = _Carry(q.new_zeros(rows, d, e + 1, dtype=dtype), q.new_zeros(rows, head, e + 1, dtype=dtype))
        keep = trained and little_enough(length, rows * max(d, e), q.device)
        kept_operands: list[Tensor] = []
        kept_products: list[Tensor | None] = []
        for block in blocks:
            operands = _operands(q, k, v, far, key_mask, phi, chunk, block, dtype, once=not keep)
            products, carry = _products(operands, near, chunk, carry)
            if keep:
                kept_operands.extend(operands)
            if trained:
                kept_products.extend(products)
            sums = torch.bmm(operands.fq.view(-1, chunk, d), products.states.flatten(0, 1))  # (Y, C, e+1)
            sums.baddbmm_(products.scores, operands.u.view(-1, chunk, e + 1))
            if products.corner is not None and products.tails is not None:
                # Not `baddbmm_`: into a slice of a tensor it computes the products one by one.
                sums[:, :head] += torch.bmm(products.corner, products.tails.flatten(0, 1))
            sums = sums.view(rows, -1, e + 1)[:, : length - block.start]  # (X, at most T, e+1)
            block_inverse = inverse_denominator(sums, out=rows_at(inverse, block.start, sums.shape[1]))
            torch.mul(sums[..., :e], block_inverse, out=rows_at(out, block.start, sums.shape[1]))
        ctx.save_for_backward(q, k, v, far, near, key_mask, out, inverse, *kept_products, *kept_operands)
        ctx.options = phi, chunk, blocks, len(kept_products)
        return out.to(v.dtype)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, far, near, key_mask, out, inverse, *kept = ctx.saved_tensors
        phi, chunk, blocks, products_kept = ctx.options
        kept_products, kept_operands = kept[:products_kept], kept[products_kept:]
        batch, heads, e, dtype = q.shape[0], q.shape[1], v.shape[3], inverse.dtype
        head = 0 if near is None else near.shape[1] - 1
        covered = blocks[-1].start + blocks[-1].chunks * chunk
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dk[:, :, covered:], dv[:, :, covered:] = 0.0, 0.0
        d_far = None if far is None else torch.zeros_like(far)  # (1 or H, 1, d)
        d_near = None if near is None else torch.zeros_like(near)  # (1 or H, R, d)
        d_state = out.new_zeros(batch * heads, q.shape[3], e + 1)  # (X, d, e+1), of the state after the block
        d_tail = d_state.new_zeros(batch * heads, head, e)  # of the last values of the block, from the corner after it
        for number in range(len(blocks) - 1, -1, -1):
            block = blocks[number]
            chunks, count = block.chunks, block.chunks * chunk
            p = _Products(*nth(kept_products, number, len(_Products._fields)))
            if kept_operands:
                operands = _Operands(*nth(kept_operands, number, len(_Operands._fields)))
            else:
                operands = _operands(q, k, v, far, key_mask, phi, chunk, block, dtype)
            fq, fk, shifted, u = (x.view(-1, chunk, x.shape[2]) for x in operands)  # (Y, C, ...)
            d_sums = sums_gradient(*(rows_of(x, block.start, count, dtype) for x in (grad, out, inverse)))
            d_sums = d_sums.view(-1, chunk, e + 1)  # (Y, C, e+1)

            d_before = torch.bmm(fq.transpose(1, 2), d_sums)  # (Y, d, e+1), of the state before each chunk
            d_after, d_state = running(d_before.unflatten(0, (-1, chunks)), d_state, reverse=True)
            d_after = d_after.flatten(0, 1)  # (Y, d, e+1), of the state after each

            d_scores = torch.bmm(d_sums, u.transpose(1, 2)).tril_()  # (Y, C, C)
            d_fq = torch.bmm(d_scores, shifted)  # (Y, C, d)
            d_fq.baddbmm_(d_sums, p.states.flatten(0, 1).transpose(1, 2))
            d_fk = torch.bmm(d_scores.transpose(1, 2), fq)  # (Y, C, d)
            d_fk.baddbmm_(u, d_after.transpose(1, 2))
            if near is not None:
                assert d_near is not None
                assert d_far is not None
                d_by_distance = d_scores.new_zeros(d_scores.shape[0], chunk, head + 1)  # (Y, C, R)
                d_by_distance[:, 1:] = _band(d_scores, head + 1)
                d_by_distance[:, 0, -1] = d_scores[:, 0, 0]
                if p.tails is not None:
                    d_corner = d_scores.new_zeros(d_scores.shape[0], head, 2 * head)  # (Y, R-1, 2R-2)
                    d_corner[..., :head] = d_sums[:, :head] @ p.tails.flatten(0, 1).transpose(1, 2)
                    d_by_distance[:, :head] += diagonals(d_corner, head + 1)
                d_by_distance = d_by_distance.view(batch * heads, count, -1)  # (X, T, R)
                d_fq.view_as(operands.fq).baddbmm_(d_by_distance, spread(near, batch, heads))
                d_near += table_gradient(d_by_distance, operands.fq, near)
                d_far += d_fk.view(-1, far.shape[0], count, d_fk.shape[2]).sum((0, 2)).unsqueeze(1)
            for target, d_x, x in ((dq, d_fq, fq), (dk, d_fk, fk)):
                store_rows(target, d_x.mul_(phi.slope_of_value(x)).view_as(operands.fq), block.start)

            d_values = torch.bmm(shifted, d_after[..., :e])  # (Y, C, e)
            d_values.baddbmm_(p.scores.transpose(1, 2), d_sums[..., :e])
            d_values = d_values.unflatten(0, (-1, chunks))  # (X, M, C, e)
            if p.corner is not None:
                d_tails = (p.corner.transpose(1, 2) @ d_sums[:, :head, :e]).unflatten(0, (-1, chunks))
                d_values[:, :-1, chunk - head :] += d_tails[:, 1:]
                d_values[:, -1, chunk - head :] += d_tail
                d_tail = d_tails[:, 0]
            store_rows(dv, d_values.flatten(1, 2), block.start)
        if key_mask is not None:
            dv.masked_fill_(~key_mask[:, None, :, None], 0.0)
        return dq, dk, dv, d_far, d_near, None, None, None, None
