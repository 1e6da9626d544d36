"""Segment-gated attention in linear time by one state for each segment: for long segments.

A_s = sum of phi(K) (x) U over segment s, U = [V, 1]. A query of segment t sees A'_t = sum_s w_t(s - t) A_s: a product
of a few weights with the states of the near segments, and the sums of the states before and after these, which are far.
Pieces of one segment, at most C positions long, make all of it matrix products. The relative term needs sums of U
alone: over the keys before a piece and after it, weighed by segment, and a window for the band of the horizon. In
causal attention the keys are shifted by b = phi(rel_0) instead, A'_t is over s < t, and the own segment is chunked as
in `causal`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.blocks import diagonals, spread, table_gradient
from scaleformer.ops.segment_state_blocks import Keys, Near, Queries, StateOptions, StateWork
from scaleformer.ops.segment_state_plan import PieceBlock
from scaleformer.ops.sums import inverse_denominator, sums_gradient


class StateAttention(torch.autograd.Function):
    """Segment-gated attention by states, block after block; the backward pass computes each block again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        shift: Tensor | None,
        table: Tensor | None,
        weights: Tensor,
        beyond: Tensor | None,
        options: StateOptions,
    ) -> Tensor:
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e); weights (B, H, N, 2G+1), w_t of each query piece.

        Without relative positions shift, table and beyond are None. Causal: shift (1 or H, 1, d), b, and table
        (1 or H, R, d) for the distances -R+1 to 0. Else the table of `bidirectional_table`, and beyond
        (B, H, N, 2, e+1), the weighed sums of U before and after each piece.
        """
        work = StateWork(q, k, v, shift, table, weights, beyond, options)
        pieces, e = options.plan.queries, v.shape[3]
        out = v.new_empty(*q.shape[:3], e)
        inverse = v.new_empty(*q.shape[:3], 1, dtype=options.dtype)
        kept = []
        for row in range(q.shape[0]):
            before, after = work.far_sums(row)
            blocks = work.query_blocks(row)
            # The own segment before each block, if segments go on from piece to piece and masked attention needs it.
            carry = before.new_zeros(
                len(blocks) + 1 if options.causal and not options.plan.whole else 0, *before.shape[1:]
            )
            for number, block in enumerate(blocks):
                p = work.queries(
                    block,
                    before[number],
                    None if options.causal else after[number],
                    carry[number] if len(carry) else None,
                )
                if p.partial is not None:
                    carry[number + 1] = p.partial[-1]
                sums = p.fq @ p.mixed  # (Y, C, e+1)
                if p.near is not None:
                    sums.baddbmm_(p.near.plain * p.near.weights, p.near.u)
                    if p.near.far is not None:
                        sums.baddbmm_(p.near.far, work.beyond_of(block))
                block_inverse = inverse_denominator(sums)
                work.store(inverse, block_inverse, block, pieces)
                work.store(out, sums[..., :e] * block_inverse, block, pieces)
            kept += [work.states[row], before, after, carry]
        ctx.save_for_backward(q, k, v, shift, table, weights, beyond, out, inverse, *kept)
        ctx.options = options
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, shift, table, weights, beyond, out, inverse, *kept = ctx.saved_tensors
        options: StateOptions = ctx.options
        work = StateWork(q, k, v, shift, table, weights, beyond, options, kept[::4])
        gradients = _Gradients(work, grad, out, inverse)
        for row in range(q.shape[0]):
            gradients.row(row, *kept[4 * row + 1 : 4 * row + 4])
        return (*gradients.results(), None)


class _Gradients:
    """The backward pass, a row of the batch at a time and its blocks from the last to the first."""

    def __init__(self, work: StateWork, grad: Tensor, out: Tensor, inverse: Tensor) -> None:
        self.work, self.grad, self.out, self.inverse = work, grad, out, inverse
        self.dq, self.dk, self.dv = torch.empty_like(work.q), torch.empty_like(work.k), torch.empty_like(work.v)
        self.d_shift = None if work.shift is None else torch.zeros_like(work.shift)
        self.d_table = None if work.table is None else torch.zeros_like(work.table)
        self.d_weights = torch.zeros_like(work.weights)
        self.d_beyond = None if work.beyond is None else torch.zeros_like(work.beyond)

    def results(self) -> tuple[Tensor | None, ...]:
        return self.dq, self.dk, self.dv, self.d_shift, self.d_table, self.d_weights, self.d_beyond

    def row(self, row: int, before: Tensor, after: Tensor, carries: Tensor) -> None:
        """before, after, carries (blocks or 0, H, m): what forward made of the states for each block of queries."""
        work, causal = self.work, self.work.options.causal
        blocks = work.query_blocks(row)
        states = work.states[row]
        d_states = torch.zeros_like(states)  # (S, H, m)
        d_values = states.new_zeros(work.v.shape[2], work.heads, work.v.shape[3])  # (L_K, H, e)
        d_after = torch.zeros_like(after)
        later = torch.zeros_like(states[0])  # (H, m), of the sums before the blocks that come later
        tail = torch.zeros_like(states[0])  # (H, m), of the own segment before the block that comes next
        done = None
        for number in range(len(blocks) - 1, -1, -1):
            block = blocks[number]
            carry = carries[number] if len(carries) else None
            p = work.queries(block, before[number], None if causal else after[number], carry)
            d_states[block.near : done] += later
            done = block.near
            d_mixed, d_shifted = self._block(block, p, d_values)
            d_seen = self._mixing(block, p, d_mixed, d_states, before[number])  # (H, T, m)
            later += (p.by_run[:, :, :1] * d_seen).sum(1)
            if not causal:
                weight = p.by_run[:, :, -1:]
                d_after[number] = (weight * d_seen).sum(1)
                by_run = (d_seen * after[number][:, None]).sum(-1)  # (H, T)
                self.d_weights[row, :, :, -1].index_add_(1, block.first + p.opening, by_run)
                continue
            assert p.keys is not None
            d_own = work.of_pieces(d_states, block)  # (M, H, m)
            if p.partial is not None:
                tail = self._partial(block, p, d_mixed, d_own, tail)
            self._keys(block, p.keys, d_own, d_shifted, d_values)
        d_states[:done] += later
        if not causal:
            total = torch.zeros_like(later)
            for number, block in enumerate(blocks):
                total += d_after[number]
                end = blocks[number + 1].far if number + 1 < len(blocks) else None
                d_states[block.far : end] += total
            for block in work.plan.key_blocks:
                if block.row == row:
                    self._keys(block, work.keys(block), work.of_pieces(d_states, block), None, d_values)
        if work.options.real is not None:
            d_values.masked_fill_(~work.options.real[row][:, None, None], 0.0)
        self.dv[row] = d_values.transpose(0, 1)

    def _block(self, block: PieceBlock, p: Queries, d_values: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradients of what each piece sees by states (M, H, m) and, in causal attention, of its keys (Y, C, d)."""
        work, pieces = self.work, self.work.plan.queries
        grad, means, inverse = (work.take(x, block, pieces) for x in (self.grad, self.out, self.inverse))
        d_sums = sums_gradient(grad, means, inverse * work.valid(block).transpose(1, 2))  # (Y, C, e+1)
        d_mixed = (p.fq.transpose(1, 2) @ d_sums).view(-1, work.heads, work.size)  # (M, H, m)
        d_fq = d_sums @ p.mixed.transpose(1, 2)  # (Y, C, d)
        d_shifted = None
        if p.near is not None:
            d_plain = self._window(block, p.near, d_sums, d_values)  # (Y, C, W)
            own = d_plain[:, :, work.head : work.head + work.chunk]  # (Y, C, C)
            past = own * own.new_ones(work.chunk, work.chunk).tril()
            if p.keys is not None:
                d_fq.baddbmm_(past, p.keys.shifted)
                d_shifted = past.transpose(1, 2) @ p.fq  # (Y, C, d)
            if work.table is not None:
                assert self.d_table is not None
                d_by_distance = diagonals(d_plain, work.band)  # (Y, C, R or 2R-1)
                if p.near.far is not None:
                    d_far = self._far(block, p.near.far, own, past, d_sums)  # (Y, C, 2)
                    d_by_distance = torch.cat([d_by_distance, d_far], dim=-1)
                d_by_distance = d_by_distance.contiguous()
                d_fq.baddbmm_(d_by_distance, spread(work.table, block.last - block.first, work.heads))
                self.d_table += table_gradient(d_by_distance, p.fq, work.table)
        work.store(self.dq, d_fq.mul_(work.options.phi.slope_of_value(p.fq)), block, pieces)
        return d_mixed, d_shifted

    def _window(self, block: PieceBlock, near: Near, d_sums: Tensor, d_values: Tensor) -> Tensor:
        """The gradient of the scores without weights (Y, C, W)."""
        work, e = self.work, d_values.shape[2]
        d_scores = d_sums @ near.u.transpose(1, 2)  # (Y, C, W)
        by_column = (d_scores * near.plain).sum(1).unflatten(0, (-1, work.heads)).transpose(0, 1)  # (H, M, W)
        column = near.column.expand(work.heads, -1, -1)
        self.d_weights[block.row, :, block.first : block.last].scatter_add_(2, column, by_column)
        d_window = (near.plain * near.weights).transpose(1, 2) @ d_sums[..., :e]  # (Y, W, e)
        d_window = d_window.unflatten(0, (-1, work.heads)).transpose(1, 2) * near.inside[:, :, None, None]
        d_values.index_add_(0, near.position.flatten(), d_window.flatten(0, 1))  # (M W, H, e)
        return d_scores.mul_(near.weights)

    def _far(self, block: PieceBlock, far: Tensor, own: Tensor, past: Tensor, d_sums: Tensor) -> Tensor:
        """The gradient (Y, C, 2) of the scores of what is before and after, in the piece and beyond it."""
        assert self.d_beyond is not None
        work = self.work
        valid = work.valid(block)  # (Y, 1, C)
        before = (past * valid).sum(-1)  # (Y, C)
        within = torch.stack([before, (own * valid).sum(-1) - before], dim=-1)  # (Y, C, 2)
        d_beyond = (far.transpose(1, 2) @ d_sums).unflatten(0, (-1, work.heads))  # (M, H, 2, e+1)
        self.d_beyond[block.row, :, block.first : block.last] = d_beyond.transpose(0, 1)
        return within.baddbmm_(d_sums, work.beyond_of(block).transpose(1, 2))

    def _mixing(self, block: PieceBlock, p: Queries, d_mixed: Tensor, d_states: Tensor, before: Tensor) -> Tensor:
        """The gradient of what each segment sees by states (H, T, m)."""
        work = self.work
        near = slice(block.near, block.far)
        d_seen = (
            d_mixed.new_zeros(p.opening.shape[0], *d_mixed.shape[1:]).index_add_(0, p.runs, d_mixed).transpose(0, 1)
        )
        d_mixing = d_seen @ work.states[block.row][near].permute(1, 2, 0)  # (H, T, K)
        if work.options.causal:
            d_mixing = d_mixing * (p.column < work.reach)
        by_run = torch.zeros_like(p.by_run).scatter_add_(2, p.column.expand_as(d_mixing), d_mixing)  # (H, T, 2G+1)
        by_run[:, :, 0] += (d_seen * before[:, None]).sum(-1)
        self.d_weights[block.row].index_add_(1, block.first + p.opening, by_run)
        d_states[near] += (p.mixing.transpose(1, 2) @ d_seen).transpose(0, 1)
        return d_seen

    def _partial(self, block: PieceBlock, p: Queries, d_mixed: Tensor, d_own: Tensor, tail: Tensor) -> Tensor:
        """Add to the gradient of the states of the pieces d_own (M, H, m) what later pieces of their segments see.

        tail (H, m): the gradient of the sum before the next block; returns that of the sum before this one.
        """
        assert p.partial is not None
        work, span = self.work, slice(block.first, block.last)
        weight = work.weights[block.row, :, span, work.reach].t()  # (M, H)
        self.d_weights[block.row, :, span, work.reach] += (d_mixed * p.partial[:-1]).sum(-1).t()
        continues = work.continues(block)
        for number in range(d_mixed.shape[0] - 1, -1, -1):
            d_partial = d_mixed[number] * weight[number, :, None]  # (H, m)
            if continues[number + 1]:
                d_own[number] += tail
                d_partial += tail
            tail = d_partial
        return tail

    def _keys(self, block: PieceBlock, keys: Keys, d_own: Tensor, d_shifted: Tensor | None, d_values: Tensor) -> None:
        """To dk and d_values, from the gradients of the states of the pieces d_own (M, H, m) and of their scores."""
        work, pieces, e = self.work, self.work.plan.keys, d_values.shape[2]
        d_own = d_own.view(keys.fk.shape[0], keys.fk.shape[2], -1)  # (Y, d, e+1)
        d_fk = keys.u @ d_own.transpose(1, 2)  # (Y, C, d)
        if d_shifted is not None:
            d_fk += d_shifted
        d_values[block.begin : block.end] += work.by_position(keys.shifted @ d_own[..., :e], block, pieces)
        if self.d_shift is not None:
            self.d_shift += d_fk.sum(1, keepdim=True).unflatten(0, (-1, self.d_shift.shape[0])).sum(0)
        work.store(self.dk, d_fk.mul_(work.options.phi.slope_of_value(keys.fk)), block, pieces)
