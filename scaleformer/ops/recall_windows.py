"""Softmax attention with recall in linear time: windows of keys around tiles of queries, and what is kept of the rest.

The windows are those of hybrid attention. Each tile of queries has, beside its window, the keys of highest rank of all
that lie before the window and after it; which of these, and of the far keys in the window itself, one of its queries
sees, the threshold of the query tells. The backward pass makes the scores again, from the logarithm of each query's
denominator ([Dao 2022], Algorithm 4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.autograd import own_backward
from scaleformer.ops.hybrid_dense import HIDDEN
from scaleformer.ops.hybrid_join import BITS
from scaleformer.ops.hybrid_plan import BLOCK, Step
from scaleformer.ops.recall_plan import Far, RecallPlan
from scaleformer.ops.recall_sets import NONE, Recalled
from scaleformer.ops.windows import Windows, add_keys, from_blocks, from_tiles, product, to_blocks, to_tiles


class RecallAttention(torch.autograd.Function):
    """Near keys and those kept of the others, under one softmax."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        u: Tensor,
        salience: Tensor,
        log_gate: Tensor,
        plan: RecallPlan,
        recalled: list[Recalled],
        table: Tensor | None,
    ) -> Tensor:
        """q (B, H, L_Q, d); k (B, H, L_K, d), u (B, H, L_K, e+1), [v, 1], zeros at pads; salience (B, H, L_K); log_gate
        (H, 2G+1); table as in `HybridAttention`. All of one dtype. -> (B, H, L_Q, e)"""
        work = _Work(q, k, u, salience, table, log_gate, plan, recalled)
        count, heads, size, _ = work.q.shape
        e = u.shape[3] - 1
        out, log_total = u.new_empty(count, heads, size, e), u.new_empty(count, heads, size, 1)
        for step, far in zip(plan.windows.steps, plan.far, strict=True):
            p = work.scores(step, far)
            top = p.scores.amax(-1, keepdim=True)  # (m, H, T, 1)
            none = top < HIDDEN / 2
            top.masked_fill_(none, 0.0)
            sums = product(p.scores.sub_(top).exp2_(), p.u)  # (m, H, T, e+1)
            totals = sums[..., e:].contiguous()
            out.index_copy_(0, step.tiles, sums[..., :e] / totals.masked_fill(none, 1.0))
            log_total.index_copy_(0, step.tiles, totals.log2_().add_(top).masked_fill_(none, float("inf")))
        ctx.save_for_backward(q, k, u, salience, table, log_gate, out, log_total)
        ctx.options = plan, recalled
        return from_tiles(out, q.shape[0], q.shape[2])

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, u, salience, table, log_gate, out, log_total = ctx.saved_tensors
        plan, recalled = ctx.options
        work = _Work(q, k, u, salience, table, log_gate, plan, recalled)
        d, e, total = q.shape[3], u.shape[3] - 1, len(work.blocks)
        d_q, d_k, d_u = torch.empty_like(work.q), k.new_zeros(total, BLOCK, d), u.new_zeros(total, BLOCK, e + 1)
        d_salience = k.new_zeros(total, BLOCK, 1)
        d_gate = log_gate.new_zeros(len(log_gate), log_gate.shape[1] + 1)
        d_table = None if table is None else torch.zeros_like(table)
        grad = to_tiles(grad, out.shape[2])  # (M, H, T, e)
        d_sums = torch.cat([grad, -(grad * out).sum(-1, keepdim=True)], dim=-1)  # (M, H, T, e+1), times the totals
        for step, far in zip(plan.windows.steps, plan.far, strict=True):
            d_sum, log_totals = (x.index_select(0, step.tiles) for x in (d_sums, log_total))
            p = work.scores(step, far)
            weights = p.scores.sub_(log_totals).exp2_()  # (m, H, T, W)
            add_keys(d_u, p.blocks, weights, d_sum)
            d_scores = product(d_sum, p.u.transpose(-1, -2)).mul_(weights)  # (m, H, T, W)
            d_query = product(d_scores, p.keys)  # (m, H, T, d)
            add_keys(d_k, p.blocks, d_scores, p.query)
            if table is not None and d_table is not None:
                by_distance = work.sums_by_distance(step, d_scores)  # (m, H, T, n)
                d_query += by_distance @ table
                d_table += (by_distance.transpose(-1, -2) @ p.query).sum(0)
            d_q.index_copy_(0, step.tiles, d_query)
            for part in far:
                blocks = p.blocks[..., part.columns.start // BLOCK : part.columns.stop // BLOCK]
                sums = (d_scores[..., part.columns] * part.pairs).sum(2)  # (m, H, w)
                d_salience.flatten(1).index_add_(0, blocks.flatten(), sums.view(-1, BLOCK))
            gates = torch.bmm(d_scores.flatten(1, 2), step.slot.transpose(-1, -2))  # (m, H T, S)
            gates = gates.unflatten(1, d_scores.shape[1:3]).transpose(0, 1).flatten(1)  # (H, m T S)
            d_gate.scatter_add_(1, step.distance.flatten().expand_as(gates), gates)
        for gradient in (d_k, d_u, d_salience):
            work.add_kept(gradient)
        d_k, d_salience = from_blocks(d_k, k) / BITS, from_blocks(d_salience, salience)[..., 0]
        d_table = None if d_table is None else d_table / BITS
        d_q = from_tiles(d_q * d**-0.5, *q.shape[::2])
        return d_q, d_k, from_blocks(d_u, u), d_salience, d_gate[:, :-1], None, None, d_table


class _Scores(NamedTuple):
    """What a step works on: m tiles of T queries and W keys.

    blocks (m, H, W/32) where the keys stand; query (m, H, T, d); keys (m, H, W, d); u (m, H, W, e+1); scores
    (m, H, T, W), to the base of 2
    """

    blocks: Tensor
    query: Tensor
    keys: Tensor
    u: Tensor
    scores: Tensor


class _Work(Windows):
    """The tensors of a call: in both passes. A row of keys is [k, u, salience, its rank on each side]."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        u: Tensor,
        salience: Tensor,
        table: Tensor | None,
        log_gate: Tensor,
        plan: RecallPlan,
        recalled: list[Recalled],
    ) -> None:
        windows = plan.windows
        ranks = [x.rank.unsqueeze(-1) for x in recalled]
        more = windows.before.numel() * q.shape[1] * plan.room * len(recalled)
        blocks = to_blocks(k, u, salience.unsqueeze(-1), *ranks, more=more)
        gate = log_gate * BITS
        if windows.causal:
            gate = torch.cat([gate[:, :-1], torch.full_like(gate[:, -1:], HIDDEN)], dim=1)
        super().__init__(q, blocks, table, gate, windows)
        self.values = self.width, self.width + u.shape[3]  # where u begins in a row, and where it ends
        self.room, self.own = plan.room, len(blocks) - more  # the blocks of the keys themselves
        number = plan.queries[:, None].expand(-1, q.shape[1], -1)  # (B, H, L_Q)
        least = (x.least.gather(2, number).unsqueeze(-1) for x in recalled)
        self.thresholds = [to_tiles(x, windows.queries) for x in least]  # (M, H, T, 1)
        self.sides = len(recalled)
        if recalled:
            self._copy_kept(recalled)

    def _copy_kept(self, recalled: list[Recalled]) -> None:
        """Lay the rows of what is kept behind all others: by tile, head and side, in whole blocks."""
        room, flat = self.room * BLOCK, self.blocks.flatten(0, 1)  # (N 32, n)
        places, ranks = [], []
        for x in recalled:
            batch, heads, tiles, count = x.kept.shape
            head = torch.arange(batch * heads, device=x.kept.device).view(batch, heads, 1, 1)
            place = (head * self.plan.blocks + 1) * BLOCK + x.position  # (B, H, tiles, N), a row of `flat`
            place = place.masked_fill(x.kept < 0, 0)  # a row of zeros
            filled = place.new_zeros(batch, tiles, heads, room)
            filled[..., :count] = place.transpose(1, 2)
            rank = x.kept.new_full(filled.shape, NONE)
            rank[..., :count] = x.kept.transpose(1, 2)
            places.append(filled)
            ranks.append(rank)
        self.places = torch.stack(places, dim=3).flatten()  # (B tiles H sides room,)
        own, rows = flat.split((self.own * BLOCK, len(self.places)))
        torch.index_select(own, 0, self.places, out=rows)
        rows[:, self.values[1] + 1 :] = torch.stack(ranks, dim=3).flatten()[:, None]

    def add_kept(self, gradient: Tensor) -> None:
        """Add the gradients of the copies in blocks (N, 32, n) to those of the keys copied."""
        if self.sides:
            own, copies = gradient.flatten(0, 1).split((self.own * BLOCK, len(self.places)))
            own.index_add_(0, self.places, copies)

    def scores(self, step: Step, far: list[Far]) -> _Scores:
        blocks, rows = self.gather(step, self._numbers(step))  # rows (m, H, W, n)
        keys, u, salience = rows[..., : self.width], rows[..., slice(*self.values)], rows[..., self.values[1]]
        query, scores = self.exact(step, keys)
        for side, part in enumerate(far):
            columns = part.columns
            rank = rows[:, :, None, columns, self.values[1] + 1 + side]  # (m, H, 1, w)
            some = scores[..., columns]
            some.addcmul_(part.pairs, salience[:, :, None, columns] * BITS)
            least = self.thresholds[side].index_select(0, step.tiles)  # (m, H, T, 1)
            some.masked_fill_((rank < least).logical_and_(part.pairs > 0), HIDDEN)
        return _Scores(blocks, query, keys, u, scores)

    def _numbers(self, step: Step) -> Tensor:
        """Where the keys of a step stand, what is kept among them: (m, H, W/32)."""
        numbers = self.block_numbers(step)
        if not self.sides:
            return numbers
        head = torch.arange(self.heads, device=numbers.device)
        first = (step.tiles[:, None] * self.heads + head) * (self.sides * self.room) + self.own  # (m, H)
        parts = [numbers]
        for side in range(self.sides):
            kept = first[..., None] + side * self.room + torch.arange(self.room, device=numbers.device)
            parts.insert(2 * side, kept)
        return torch.cat(parts, dim=-1)
