"""Softmax attention with recall in linear time: windows of keys around tiles of queries, and what is kept of the rest.

The windows are those of hybrid attention. Each tile of queries has, beside its window, the keys of highest rank of all
that lie before the window and after it. Which of these, and of the far keys in the window itself, a query sees is the
same for all queries of a segment, as are gates and salience: a small matrix of the segments in a tile and its keys,
which comes to the scores with the product of queries and keys, as more features of both. The backward pass makes the
scores again, from the logarithm of each query's denominator ([Dao 2022], Algorithm 4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.autograd import own_backward
from scaleformer.ops.hybrid_dense import HIDDEN
from scaleformer.ops.hybrid_join import BITS
from scaleformer.ops.hybrid_plan import BLOCK, Step
from scaleformer.ops.recall_plan import Asking, RecallPlan
from scaleformer.ops.recall_sets import NONE, Recalled
from scaleformer.ops.windows import Windows, add_keys, from_blocks, from_tiles, product, to_blocks, to_tiles


class RecallAttention(torch.autograd.Function):
    """Near keys and those kept of the others, under one softmax."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        salience: Tensor,
        log_gate: Tensor,
        plan: RecallPlan,
        recalled: list[Recalled],
        table: Tensor | None,
        key_mask: Tensor | None,
    ) -> Tensor:
        """q (B, H, L_Q, d); k (B, H, L_K, d), v (B, H, L_K, e); salience (B, H, L_K), no matter what at pads; log_gate
        (H, 2G+1); table (1 or H, n, d) of `score_table`, or None. All of one dtype. -> (B, H, L_Q, e)"""
        work = _Work(q, k, v, salience, table, log_gate, plan, recalled, key_mask)
        count, heads, size, _ = work.q.shape
        out, log_total = v.new_empty(count, heads, size, v.shape[3]), v.new_empty(count, heads, size, 1)
        for step, asking in zip(plan.windows.steps, plan.asking, strict=True):
            p = work.scores(step, asking)
            top = p.scores.amax(-1, keepdim=True)  # (m, H, T, 1)
            none = top < HIDDEN / 2
            top.masked_fill_(none, 0.0)
            weights = p.scores.sub_(top).exp2_()
            total = weights.sum(-1, keepdim=True)
            out.index_copy_(0, step.tiles, product(weights, p.u[..., 1:]) / total.masked_fill(none, 1.0))
            log_total.index_copy_(0, step.tiles, total.log2_().add_(top).masked_fill_(none, float("inf")))
        ctx.save_for_backward(q, k, v, salience, table, log_gate, out, log_total, key_mask)
        ctx.options = plan, recalled
        return from_tiles(out, q.shape[0], q.shape[2])

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, salience, table, log_gate, out, log_total, key_mask = ctx.saved_tensors
        plan, recalled = ctx.options
        work = _Work(q, k, v, salience, table, log_gate, plan, recalled, key_mask)
        d, total = q.shape[3], len(work.blocks)
        d_q, d_k, d_v = torch.empty_like(work.q), k.new_zeros(total, BLOCK, d), v.new_zeros(total, BLOCK, v.shape[3])
        d_salience = k.new_zeros(total, BLOCK, 1)
        d_gate = log_gate.new_zeros(len(log_gate), log_gate.shape[1] + 1)
        d_table = None if table is None else torch.zeros_like(table)
        grad = to_tiles(grad, out.shape[2])  # (M, H, T, e)
        d_sums = torch.cat([-(grad * out).sum(-1, keepdim=True), grad], dim=-1)  # (M, H, T, 1+e), times the totals
        for step, asking in zip(plan.windows.steps, plan.asking, strict=True):
            d_sum, log_totals = (x.index_select(0, step.tiles) for x in (d_sums, log_total))
            p = work.scores(step, asking)
            weights = p.scores.sub_(log_totals).exp2_()  # (m, H, T, W)
            add_keys(d_v, p.blocks, weights, d_sum[..., 1:])
            d_scores = product(d_sum, p.u.transpose(-1, -2)).mul_(weights)  # (m, H, T, W)
            d_query = product(d_scores, p.keys)  # (m, H, T, d)
            add_keys(d_k, p.blocks, d_scores, p.query)
            if table is not None and d_table is not None:
                by_distance = work.sums_by_distance(step, d_scores)  # (m, H, T, n)
                d_query += by_distance @ table
                d_table += (by_distance.transpose(-1, -2) @ p.query).sum(0).sum_to_size(table.shape)
            d_q.index_copy_(0, step.tiles, d_query)
            d_bias = product(p.inside.transpose(-1, -2), d_scores)  # (m, H, n, W)
            for part in asking.far:
                blocks = p.blocks[..., part.columns.start // BLOCK : part.columns.stop // BLOCK]
                sums = (d_bias[..., part.columns] * part.pairs).sum(2)  # (m, H, w)
                d_salience.flatten(1).index_add_(0, blocks.flatten(), sums.view(-1, BLOCK))
            gates = (d_bias.flatten(1, 2) @ step.slot.transpose(-1, -2)).sum(0).view(len(d_gate), -1)  # (H, n S)
            d_gate.scatter_add_(1, asking.distance.flatten().expand_as(gates), gates)
        for gradient in (d_k, d_v, d_salience):
            work.add_kept(gradient)
        d_k, d_salience = from_blocks(d_k, k) / BITS, from_blocks(d_salience, salience)[..., 0]
        d_table = None if d_table is None else d_table / BITS
        d_q = from_tiles(d_q * d**-0.5, *q.shape[::2])
        return d_q, d_k, from_blocks(d_v, v), d_salience, d_gate[:, :-1], None, None, d_table, None


class _Scores(NamedTuple):
    """What a step works on: m tiles of T queries, in n segments at most, and W keys.

    blocks (m, H, W/32) where the keys stand; query (m, H, T, d); inside (m, H, T, n) 1 where a query is in a segment;
    keys (m, H, W, d); u (m, H, W, 1+e), [1, v]; scores (m, H, T, W), to the base of 2
    """

    blocks: Tensor
    query: Tensor
    inside: Tensor
    keys: Tensor
    u: Tensor
    scores: Tensor


class _Work(Windows):
    """The tensors of a call: in both passes. A row of keys is [more features, k, 1, v, salience, rank on each side].

    The features are written in every step: what the segments of its queries make of a key and, if positions count and
    scores are not causal, 1 for the keys after the tile.
    """

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        salience: Tensor,
        table: Tensor | None,
        log_gate: Tensor,
        plan: RecallPlan,
        recalled: list[Recalled],
        key_mask: Tensor | None,
    ) -> None:
        windows = plan.windows
        after = table is not None and not windows.causal
        features = max(asking.inside.shape[2] for asking in plan.asking) + after
        ranks = [x.rank.unsqueeze(-1) for x in recalled]
        more = windows.before.numel() * q.shape[1] * plan.room * len(recalled)
        blank, one = (k.new_full((), value) for value in (0.0, 1.0))
        blank, one = blank.expand(*k.shape[:3], features), one.expand(*k.shape[:3], 1)
        pads = None if key_mask is None else ~key_mask[:, None, :, None]  # (B, 1, L_K, 1)
        blocks = to_blocks(blank, k, one, v, salience.unsqueeze(-1), *ranks, pads=pads, more=more)
        super().__init__(q, blocks, 0 if table is None else table.shape[1] - after, windows)
        self.table, self.after = table, after
        gate = log_gate * BITS
        if windows.causal:
            gate = torch.cat([gate[:, :-1], torch.full_like(gate[:, -1:], HIDDEN)], dim=1)
        self.gate = functional.pad(gate, (0, 1), value=HIDDEN)  # (H, 2G+2)
        self.first = features  # where the key begins in a row
        self.values = slice(features + self.width, features + self.width + 1 + v.shape[3])
        self.room, self.own_blocks = plan.room, len(blocks) - more  # the blocks of the keys themselves
        self.least = [x.least for x in recalled]  # (B, H, numbers)
        self.sides = len(recalled)
        if recalled:
            self._copy_kept([x.outside for x in recalled if x.outside is not None])

    def _copy_kept(self, outside: list[tuple[Tensor, Tensor]]) -> None:
        """Lay the rows of what is kept behind all others: by tile, head and side, in whole blocks."""
        room, flat = self.room * BLOCK, self.blocks.flatten(0, 1)  # (N 32, n)
        places, ranks = [], []
        for position, kept in outside:  # (B, H, tiles, N) each
            batch, heads, tiles, count = kept.shape
            head = torch.arange(batch * heads, device=kept.device).view(batch, heads, 1, 1)
            place = (head * self.plan.blocks + 1) * BLOCK + position  # a row of `flat`
            place = place.masked_fill(kept < 0, 0)  # a row of zeros
            filled = place.new_zeros(batch, tiles, heads, room)
            filled[..., :count] = place.transpose(1, 2)
            rank = kept.new_full(filled.shape, NONE)
            rank[..., :count] = kept.transpose(1, 2)
            places.append(filled)
            ranks.append(rank)
        self.places = torch.stack(places, dim=3).flatten()  # (B tiles H sides room,)
        own, rows = flat.split((self.own_blocks * BLOCK, len(self.places)))
        torch.index_select(own, 0, self.places, out=rows)
        rows[:, self.values.stop + 1 :] = torch.stack(ranks, dim=3).flatten()[:, None]

    def add_kept(self, gradient: Tensor) -> None:
        """Add the gradients of the copies in blocks (N, 32, n) to those of the keys copied."""
        if self.sides:
            own, copies = gradient.flatten(0, 1).split((self.own_blocks * BLOCK, len(self.places)))
            own.index_add_(0, self.places, copies)

    def scores(self, step: Step, asking: Asking) -> _Scores:
        blocks = self._numbers(step)
        rows = self.gather(step, blocks)  # (m, H, W, n)
        query = self.q.index_select(0, step.tiles)  # (m, H, T, d)
        inside = asking.inside[:, None].expand(-1, self.heads, -1, -1)  # (m, H, T, n)
        features, begin = [inside], self.first - self.after - inside.shape[3]
        rows[..., begin : begin + inside.shape[3]] = self._bias(step, asking, rows).transpose(-1, -2)
        by_distance = None if self.table is None else query @ self.table.transpose(-1, -2)  # (m, H, T, R or 2R)
        if self.after and by_distance is not None:
            self.beyond(step, rows[..., self.first - 1]).fill_(1.0)
            features.append(by_distance[..., -1:])
        wide = torch.cat([*features, query], dim=-1)
        end = self.first + self.width
        scores = product(wide, rows[..., begin:end].transpose(-1, -2))  # (m, H, T, W)
        if self.plan.causal:
            self.own(step, scores).add_(self.later * HIDDEN)
        if by_distance is not None:
            if self.after:
                self.own(step, scores).addcmul_(by_distance[..., -1:], self.later)
            self.within(step, scores).add_(by_distance[..., : self.band].flatten(0, 1))
        return _Scores(blocks, query, inside, rows[..., self.first : end], rows[..., self.values], scores)

    def _bias(self, step: Step, asking: Asking, rows: Tensor) -> Tensor:
        """What is added to the score of a key for all queries of a segment: (m, H, n, W)."""
        count, end = len(asking.distance), self.values.stop
        gates = self.gate.index_select(1, asking.distance.flatten()).view(self.heads * count, -1)  # (H n, S)
        bias = (gates @ step.slot).unflatten(1, (self.heads, count))  # (m, H, n, W)
        for side, part in enumerate(asking.far):
            some, columns = bias[..., part.columns], rows[:, :, None, part.columns]
            some.addcmul_(part.pairs, columns[..., end] * BITS)
            dropped = columns[..., end + 1 + side] < self._least(side, step, asking)  # (m, H, n, w)
            some.masked_fill_(dropped.logical_and_(part.pairs > 0), HIDDEN)
        return bias

    def _least(self, side: int, step: Step, asking: Asking) -> Tensor:
        """The least rank that the queries of a segment see: (m, H, n, 1)."""
        least = self.least[side]  # (B, H, numbers)
        row = step.tiles // (len(self.q) // len(least))  # (m,)
        number = asking.first[:, None] + torch.arange(len(asking.distance), device=row.device)  # (m, n)
        number = number.clamp(max=least.shape[2] - 1)
        return least[row[:, None], :, number].transpose(1, 2).unsqueeze(-1)

    def sums_by_distance(self, step: Step, d_scores: Tensor) -> Tensor:
        """The gradient (m, H, T, n) of what a query has of the table, from that of its scores (m, H, T, W)."""
        band = self.within(step, d_scores).unflatten(0, d_scores.shape[:2])
        return torch.cat([band, self.later_sums(step, d_scores)], dim=-1) if self.after else band

    def _numbers(self, step: Step) -> Tensor:
        """Where the keys of a step stand, what is kept among them: (m, H, W/32)."""
        numbers = self.block_numbers(step)
        if not self.sides:
            return numbers
        head = torch.arange(self.heads, device=numbers.device)
        first = (step.tiles[:, None] * self.heads + head) * (self.sides * self.room) + self.own_blocks  # (m, H)
        parts = [numbers]
        for side in range(self.sides):
            kept = first[..., None] + side * self.room + torch.arange(self.room, device=numbers.device)
            parts.insert(2 * side, kept)
        return torch.cat(parts, dim=-1)
