"""Bidirectional attention in linear time: one sum over all keys, and clipped relative positions by windows.

    phi(q_i) . sum_j phi(k_j) (x) U_j  +  sum_j phi(q_i).phi(rel_{clip(j-i)+R}) U_j                      U = [V, 1]

The relative part of a query in chunk n ([Scaleformer] Algorithm 2, by chunks): keys in the chunks before n have weight
phi(q_i).b, b = phi(rel_0); keys in the chunks after n phi(q_i).a, a = phi(rel_2R); keys in chunk n one or the other.
Within the horizon, |t| < R, a band adds phi(q_i).(phi(rel_{t+R}) - (b if t <= 0 else a)). All this is one product of
scores (C, C + 2R) with the window of U and two more rows: the sums of U over the chunks before and after.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.blocks import (
    Block,
    add_windows,
    blocks_of,
    clear_pads,
    diagonals,
    little_enough,
    nth,
    rows_at,
    rows_of,
    spread,
    store_rows,
    table_gradient,
    u_rows,
    u_windows,
)
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.sums import inverse_denominator, sums_gradient


class _Keys(NamedTuple):
    """A block of keys as rows."""

    fk: Tensor  # (X, T, d)
    u: Tensor  # (X, T, e+1)


class _Queries(NamedTuple):
    """A block of queries and, with relative positions, their weights for the window; Y = X M, W = C + 2R."""

    fq: Tensor  # (X, T, d)
    window: Tensor | None  # (Y, W, e+1)


def _prepare_keys(
    k: Tensor, v: Tensor, key_mask: Tensor | None, phi: FeatureMap, chunk: int, block: Block, dtype: torch.dtype
) -> _Keys:
    count = block.chunks * chunk
    fk = phi(rows_of(k, block.start, count, dtype)).contiguous()  # (X, T, d)
    if key_mask is not None:
        clear_pads(fk, key_mask, block.start, k.shape[1])
    return _Keys(fk, u_rows(v, key_mask, block.start, count, dtype))


def _prepare_queries(
    q: Tensor, v: Tensor, beyond: Tensor | None, head: int, key_mask: Tensor | None, phi: FeatureMap, chunk: int,
    block: Block, dtype: torch.dtype,
) -> _Queries:  # fmt: skip
    chunks = block.chunks
    fq = phi(rows_of(q, block.start, chunks * chunk, dtype)).contiguous()  # (X, T, d)
    if beyond is None:
        return _Queries(fq, None)
    window = u_windows(v, key_mask, block, chunk, head, head, 2, dtype).flatten(0, 1)  # (X, M, W, e+1)
    first = block.start // chunk
    window[:, :, -2:] = beyond[:, first : first + chunks]
    return _Queries(fq, window.flatten(0, 1))


def _relative_scores(fq: Tensor, table: Tensor, chunk: int) -> Tensor:
    """The weights (Y, C, W) of the window of each chunk, from its queries (X, T, d)."""
    band = table.shape[1] - 2
    head = band // 2
    copies = fq.shape[0] // table.shape[0]
    by_distance = fq @ spread(table, copies, table.shape[0]).transpose(1, 2)  # (X, T, 2R+1)
    by_distance = by_distance.view(-1, chunk, table.shape[1])  # (Y, C, 2R+1)
    scores = fq.new_zeros(*by_distance.shape[:2], chunk + 2 * head + 2)  # (Y, C, W)
    own, past = scores[:, :, head : head + chunk], scores.new_ones(chunk, chunk).tril()
    torch.mul(by_distance[..., -2:-1], past, out=own)
    own.addcmul_(by_distance[..., -1:], 1 - past)  # arithmetic, since torch.where is slow with a broadcast mask
    scores[:, :, -2:] = by_distance[..., -2:]
    diagonals(scores, band).add_(by_distance[..., :-2])
    return scores


def _sums_beyond(by_chunk: Tensor) -> Tensor:
    """For each chunk the sums over the chunks before and after it: (X, N, 2, n) from sums by chunk (X, N, n)."""
    before = by_chunk.cumsum(1).roll(1, 1)  # (X, N, n)
    before[:, 0] = 0.0
    after = by_chunk.flip(1).cumsum(1).roll(1, 1)  # (X, N, n), from the last chunk to the first
    after[:, 0] = 0.0
    return torch.stack([before, after.flip(1)], dim=2)  # (X, N, 2, n)


class BidirectionalAttention(torch.autograd.Function):
    """Bidirectional attention, block by block. For long sequences backward recomputes everything but the scores."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, key_mask: Tensor | None, phi: FeatureMap,
        chunk: int, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e).

        table (1 or H, 2R+1, d): the band phi(rel_{t+R}) - (b or a), t from -R+1 to R-1, then b, then a.
        """
        batch, heads, length, d = q.shape
        e, rows = v.shape[3], batch * heads
        query_blocks, key_blocks = (blocks_of(x.shape[2], chunk, rows * max(d, e), q.device) for x in (q, k))
        trained = any(ctx.needs_input_grad)
        keep = tuple(trained and little_enough(x.shape[2], rows * max(d, e), q.device) for x in (q, k))
        kept_queries: list[Tensor | None] = []
        kept_keys: list[Tensor] = []
        kept_scores: list[Tensor] = []
        state = q.new_zeros(rows, d, e + 1, dtype=dtype)
        head = 0 if table is None else table.shape[1] // 2 - 1
        chunks = -(-max(length, k.shape[2]) // chunk)
        by_chunk = state.new_zeros(rows, chunks, e + 1)
        for block in key_blocks:
            keys = _prepare_keys(k, v, key_mask, phi, chunk, block, dtype)
            if keep[1]:
                kept_keys.extend(keys)
            state.baddbmm_(keys.fk.transpose(1, 2), keys.u)  # (X, d, e+1)
            first = block.start // chunk
            torch.sum(keys.u.unflatten(1, (-1, chunk)), 2, out=by_chunk[:, first : first + block.chunks])
        beyond = None if table is None else _sums_beyond(by_chunk)  # (X, N, 2, e+1)
        out = v.new_empty(batch, heads, length, e, dtype=dtype if trained else v.dtype)  # backward needs it exactly
        inverse = v.new_empty(batch, heads, length, 1, dtype=dtype)
        for block in query_blocks:
            queries = _prepare_queries(q, v, beyond, head, key_mask, phi, chunk, block, dtype)
            if keep[0]:
                kept_queries.extend(queries)
            sums = queries.fq @ state  # (X, T, e+1)
            if table is not None:
                assert queries.window is not None
                scores = _relative_scores(queries.fq, table, chunk)  # (Y, C, W)
                sums.view(-1, chunk, e + 1).baddbmm_(scores, queries.window)
                if trained:
                    kept_scores.append(scores)
            sums = sums[:, : length - block.start]  # (X, at most T, e+1)
            block_inverse = inverse_denominator(sums, out=rows_at(inverse, block.start, sums.shape[1]))
            torch.mul(sums[..., :e], block_inverse, out=rows_at(out, block.start, sums.shape[1]))
        kept = [*kept_scores, *kept_keys, *kept_queries]
        ctx.save_for_backward(q, k, v, table, key_mask, out, inverse, state, beyond, *kept)
        ctx.options = phi, chunk, query_blocks, key_blocks, len(kept_scores), len(kept_keys)
        return out.to(v.dtype)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, table, key_mask, out, inverse, state, beyond, *kept = ctx.saved_tensors
        phi, chunk, query_blocks, key_blocks, scores_kept, keys_kept = ctx.options
        kept_scores, kept = kept[:scores_kept], kept[scores_kept:]
        kept_keys, kept_queries = kept[:keys_kept], kept[keys_kept:]
        batch, heads, e, dtype = q.shape[0], q.shape[1], v.shape[3], state.dtype
        rows, head = batch * heads, 0 if table is None else table.shape[1] // 2 - 1
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        d_state = torch.zeros_like(state)  # (X, d, e+1)
        d_table = None if table is None else torch.zeros_like(table)
        chunks = max(blocks[-1].start // chunk + blocks[-1].chunks for blocks in (query_blocks, key_blocks))
        d_values = state.new_zeros(rows, chunks * chunk + 2 * head, e)  # from position -(R - 1) on
        d_beyond = state.new_zeros(rows, chunks, 2, e)
        for number, block in enumerate(query_blocks):
            if kept_queries:
                p = _Queries(*nth(kept_queries, number, len(_Queries._fields)))
            else:
                p = _prepare_queries(q, v, beyond, head, key_mask, phi, chunk, block, dtype)
            count, first = block.chunks * chunk, block.start // chunk
            d_sums = sums_gradient(*(rows_of(x, block.start, count, dtype) for x in (grad, out, inverse)))
            d_state.baddbmm_(p.fq.transpose(1, 2), d_sums)  # (X, d, e+1)
            d_fq = d_sums @ state.transpose(1, 2)  # (X, T, d)
            if table is not None:
                assert d_table is not None
                assert p.window is not None
                d_sums = d_sums.view(-1, chunk, e + 1)  # (Y, C, e+1)
                d_by_distance = _scores_gradient(d_sums @ p.window.transpose(1, 2), head)  # (Y, C, 2R+1)
                d_by_distance = d_by_distance.view(rows, count, -1)  # (X, T, 2R+1)
                d_fq.baddbmm_(d_by_distance, spread(table, batch, heads))
                d_table += table_gradient(d_by_distance, p.fq, table)
                d_window = kept_scores[number].transpose(1, 2) @ d_sums[..., :e]  # (Y, W, e)
                d_window = d_window.unflatten(0, (rows, -1))  # (X, M, W, e)
                add_windows(d_values[:, block.start :], d_window[:, :, :-2], chunk)
                d_beyond[:, first : first + block.chunks] = d_window[:, :, -2:]
            store_rows(dq, d_fq.mul_(phi.slope_of_value(p.fq)), block.start)
        # A chunk counts as "before" for later chunks and as "after" for earlier ones.
        d_chunks = _sums_beyond(d_beyond[:, :, 0])[:, :, 1] + _sums_beyond(d_beyond[:, :, 1])[:, :, 0]  # (X, N, e)
        for number, block in enumerate(key_blocks):
            if kept_keys:
                keys = _Keys(*nth(kept_keys, number, len(_Keys._fields)))
            else:
                keys = _prepare_keys(k, v, key_mask, phi, chunk, block, dtype)
            count, first = block.chunks * chunk, block.start // chunk
            d_fk = keys.u @ d_state.transpose(1, 2)  # (X, T, d)
            store_rows(dk, d_fk.mul_(phi.slope_of_value(keys.fk)), block.start)
            d_v = keys.fk @ d_state[..., :e]  # (X, T, e)
            if table is not None:
                d_v += d_values[:, head + block.start : head + block.start + count]
                d_v.view(rows, -1, chunk, e).add_(d_chunks[:, first : first + block.chunks, None])
            store_rows(dv, d_v, block.start)
        if key_mask is not None:
            dv.masked_fill_(~key_mask[:, None, :, None], 0.0)
        return dq, dk, dv, d_table, None, None, None, None


def _scores_gradient(d_scores: Tensor, head: int) -> Tensor:
    """The gradient (Y, C, 2R+1) of the scores by distance, in the order of the table, from that of the scores."""
    chunk = d_scores.shape[1]
    own = d_scores[:, :, head : head + chunk]  # (Y, C, C)
    past = (own * own.new_ones(chunk, chunk).tril()).sum(-1)  # (Y, C)
    far = d_scores[:, :, -2:] + torch.stack([past, own.sum(-1) - past], dim=-1)  # (Y, C, 2)
    return torch.cat([diagonals(d_scores, 2 * head + 1), far], dim=-1)
