"""Softmax attention with recall in linear time: windows of keys around tiles of queries, and kept keys from outside.

A tile holds consecutive queries and sees a window: the keys near any of its queries. To the window are joined the keys
of highest rank from before it and from after it. All queries of a segment see the same of these, and of the far keys in
the window itself, and share gates and salience. So both form a small matrix of the tile's segments by its keys, which
one more product, of few columns, adds to the scores. The backward pass keeps the weights of a few scores; for more, it
recomputes them from the logarithm of each query's denominator ([Dao 2022], Algorithm 4).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.sums import softmax_gradient
from scaleformer.ops.recall.plan import QuerySegments, RecallPlan
from scaleformer.ops.recall.selection import Recalled
from scaleformer.ops.segments.gate import HIDDEN
from scaleformer.ops.segments.tiles import BLOCK, TileGroup
from scaleformer.ops.segments.windows import (
    KeyBlocks,
    Windows,
    add_keys,
    from_blocks,
    from_tiles,
    product,
    to_blocks,
    to_tiles,
)

# Scores are base-2 logarithms: on a CPU torch's exp, unlike exp2, is very slow on underflow (torch 2.13, Intel).
BITS = math.log2(math.e)
# The most scores of a call whose weights are kept for backward: about as many as scores of all pairs have where the
# linear form becomes the faster one, with batches of the usual size. On a GPU memory is dearer.
KEPT_SCORES = {"cpu": 1 << 23, "cuda": 0}


class RecallAttention(torch.autograd.Function):
    """One softmax over the near keys and the kept far keys."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, salience: Tensor, log_gate: Tensor, plan: RecallPlan,
        recalled: list[Recalled], table: Tensor | None, key_mask: Tensor | None, backward: bool,
    ) -> Tensor:  # fmt: skip
        """q (B, H, L_Q, d), k (B, H, L_K, d) and v (B, H, L_K, e), in the dtype of the products; the others and the
        result in fp32 at least: salience (B, H, L_K), ignored at pads; log_gate (H, 2N+3); table (1 or H, n, d) of
        `score_table`, or None; backward: whether a backward pass may follow; result (B, H, L_Q, e)"""
        kept = [torch.stack(x, dim=3).flatten() for x in zip(*(x.outside for x in recalled if x.outside), strict=True)]
        recalled = [x._replace(outside=None) for x in recalled]
        terms = _terms(log_gate, table, plan, q.shape[3])
        call = _Call(q, k, v, salience, terms, plan, recalled, kept, key_mask)
        count, heads, size, _ = call.q.shape
        out, log_total = (salience.new_empty(count, heads, size, n) for n in (v.shape[3], 1))
        products, weights_of = q.dtype, []
        scores = sum(len(group.tiles) * heads * size * group.width for group in plan.tiles.groups)
        keep = backward and scores <= KEPT_SCORES["cpu" if q.device.type == "cpu" else "cuda"]
        for group, segments in zip(plan.tiles.groups, plan.queries, strict=True):
            p = call.scores(group, segments)
            top = p.scores.amax(-1, keepdim=True)  # (m, H, T, 1)
            none = top < HIDDEN / 2
            top.masked_fill_(none, 0.0)
            weights = p.scores.sub_(top).exp2_()
            total = weights.sum(-1, keepdim=True)
            inverse = total.reciprocal().masked_fill_(none, 0.0)
            if keep:
                weights_of.append(weights.mul_(inverse).to(products))
            sums = product(weights_of[-1] if keep else weights.to(products), p.values)  # (m, H, T, e)
            out.index_copy_(0, group.tiles, sums if keep else sums.mul_(inverse))
            log_total.index_copy_(0, group.tiles, total.log2_().add_(top).masked_fill_(none, float("inf")))
        ctx.save_for_backward(q, k, v, salience, table, log_gate, log_total, key_mask, *weights_of)
        ctx.options = terms, plan, recalled, kept
        return from_tiles(out, q.shape[0], q.shape[2])

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, salience, table, log_gate, log_total, key_mask, *weights_of = ctx.saved_tensors
        (terms, plan, recalled, kept), products = ctx.options, q.dtype
        call = _Call(q, k, v, salience, terms, plan, recalled, kept, key_mask)
        d, total = q.shape[3], len(call.keys.blocks)
        d_q = log_total.new_empty(call.q.shape)
        d_k, d_v, d_salience = (log_total.new_zeros(total, BLOCK, n) for n in (d, v.shape[3], 1))
        d_gate = log_gate.new_zeros(len(log_gate), log_gate.shape[1] + 1)
        d_table = None if table is None else torch.zeros_like(table)
        grad = to_tiles(grad.to(products), plan.tiles.queries)  # (M, H, T, e)
        for number, (group, segments) in enumerate(zip(plan.tiles.groups, plan.queries, strict=True)):
            d_out = grad.index_select(0, group.tiles)
            if weights_of:
                weights, (query, keys, values) = weights_of[number], call.gather(group)  # (m, H, T, W)
            else:
                query, keys, values, scores = call.scores(group, segments)
                weights = scores.sub_(log_total.index_select(0, group.tiles)).exp2_()
            add_keys(d_v, group.blocks, weights.to(products), d_out)
            d_scores = softmax_gradient(product(d_out, values.transpose(-1, -2)), weights)  # (m, H, T, W)
            factor = d_scores.to(products)
            d_query = product(factor, keys)  # (m, H, T, d)
            add_keys(d_k, group.blocks, factor, query)
            if table is not None and d_table is not None:
                by_distance = call.sums_by_distance(group, d_scores)  # (m, H, T, n)
                d_query += by_distance @ table
                d_table += (by_distance.transpose(-1, -2) @ query.to(table.dtype)).sum(0).sum_to_size(table.shape)
            d_q.index_copy_(0, group.tiles, d_query)
            d_bias = product(segments.inside.transpose(-1, -2), d_scores)  # (m, H, n, W)
            for part in segments.far:
                blocks = group.blocks[..., part.columns.start // BLOCK : part.columns.stop // BLOCK]
                sums = (d_bias[..., part.columns] * part.pairs).sum(2)  # (m, H, w)
                d_salience.flatten(1).index_add_(0, blocks.flatten(), sums.view(-1, BLOCK))
            gates = (d_bias.flatten(1, 2) @ group.slot.transpose(-1, -2)).sum(0).view(len(d_gate), -1)  # (H, n S)
            d_gate.scatter_add_(1, segments.distance.flatten().expand_as(gates), gates)
        for gradient in (d_k, d_v, d_salience):
            call.add_kept(gradient)
        d_table = None if d_table is None else d_table * d**-0.5
        d_q, d_k = (x * d**-0.5 for x in (from_tiles(d_q, *q.shape[::2]), from_blocks(d_k, k)))
        d_v, d_salience = from_blocks(d_v, v), from_blocks(d_salience, salience)[..., 0]
        return d_q, d_k, d_v, d_salience, d_gate[:, :-1], None, None, d_table, None, None


class _Scores(NamedTuple):
    """Operands and scores of a group: m tiles of T queries, in n segments at most, and W keys.

    query (m, H, T, d); keys (m, H, W, d); values (m, H, W, e); scores (m, H, T, W), base-2 logarithms
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    scores: Tensor


class _Terms(NamedTuple):
    """The gate (H, 2N+4), the last for hidden keys, and the distances' table (1 or H, d, R or 2R) or None; in bits."""

    gate: Tensor
    table: Tensor | None


def _terms(log_gate: Tensor, table: Tensor | None, plan: RecallPlan, width: int) -> _Terms:
    gate = log_gate * BITS
    if plan.tiles.causal:
        gate[:, -1] = HIDDEN
    scaled = None if table is None else table.transpose(-1, -2) * (BITS * width**-0.5)
    return _Terms(functional.pad(gate, (0, 1), value=HIDDEN), scaled)


class _Call(Windows):
    """The tensors of a call, for both passes. A row of marks is [salience, rank on each side]; `kept` are the rows and
    the ranks of the kept keys, each (B tiles H sides room,), if there are any."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, salience: Tensor, terms: _Terms, plan: RecallPlan,
        recalled: list[Recalled], kept: list[Tensor], key_mask: Tensor | None,
    ) -> None:  # fmt: skip
        tiles, (self.gate, self.table) = plan.tiles, terms
        # Whether keys after the tile have a column of the table.
        self.after = self.table is not None and not tiles.causal
        super().__init__(q, 0 if self.table is None else self.table.shape[2] - self.after, tiles)
        more = tiles.low.numel() * self.heads * plan.room * len(recalled)
        pads = None if key_mask is None else ~key_mask[:, None, :, None]  # (B, 1, L_K, 1)
        marks = salience.unsqueeze(-1), *(x.rank.unsqueeze(-1) for x in recalled)
        # Keys and values are separate: in bfloat16 a product of row slices would copy them.
        self.keys, self.values, self.marks = (
            KeyBlocks(to_blocks(*parts, pads=pads, more=more), self.heads, tiles) for parts in ((k,), (v,), marks)
        )
        self.scale = BITS * self.width**-0.5
        self.own_blocks = len(self.keys.blocks) - more  # the blocks of the keys themselves
        self.least = [x.least for x in recalled]  # (B, H, numbers)
        self.rows = kept[0] if kept else None
        if kept:
            for keys in (self.keys, self.values, self.marks):
                own, copies = self._split(keys.blocks, kept[0])
                torch.index_select(own, 0, kept[0], out=copies)
            copies[:, 1:] = kept[1][:, None]

    def _split(self, blocks: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        """The rows of the keys themselves and of the copies of `rows`, of all blocks."""
        return blocks.flatten(0, 1).split((self.own_blocks * BLOCK, len(rows)))

    def add_kept(self, gradient: Tensor) -> None:
        """Add the gradients of the copies, in blocks (N, 32, n), to those of the original keys."""
        if self.rows is not None:
            own, copies = self._split(gradient, self.rows)
            own.index_add_(0, self.rows, copies)

    def gather(self, group: TileGroup) -> tuple[Tensor, Tensor, Tensor]:
        """A group's queries (m, H, T, d), keys (m, H, W, d) and values (m, H, W, e), all valid until the next call."""
        query = self.q.index_select(0, group.tiles)
        return query, self.keys.gather(group.blocks), self.values.gather(group.blocks)

    def scores(self, group: TileGroup, segments: QuerySegments) -> _Scores:
        query, keys, values = self.gather(group)
        features, bias, by_distance = segments.inside, self._bias(group, segments), None
        if self.table is not None:
            by_distance = query.to(self.table.dtype) @ self.table  # (m, H, T, R or 2R)
            if self.after:
                features = torch.cat([segments.inside, by_distance[..., -1:]], dim=-1)
                bias = functional.pad(bias, (0, 0, 0, 1))
                self.beyond(group, bias[..., -1, :]).fill_(1.0)
        scores = product(query, keys.transpose(-1, -2))  # (m, H, T, W)
        scores.flatten(0, 1).baddbmm_(features.flatten(0, 1), bias.flatten(0, 1), beta=self.scale)
        if self.plan.causal:
            self.own(group, scores).add_(self.plan.later, alpha=HIDDEN)
        if by_distance is not None:
            if self.after:
                self.own(group, scores).addcmul_(by_distance[..., -1:], self.plan.later)
            self.within(group, scores).add_(by_distance[..., : self.band].flatten(0, 1))
        return _Scores(query, keys, values, scores)

    def _bias(self, group: TileGroup, segments: QuerySegments) -> Tensor:
        """The term added to the score of each key, for all queries of a segment: (m, H, n, W)."""
        count = len(segments.distance)
        marks = self.marks.gather(group.blocks)  # (m, H, W, 1 or more)
        gates = self.gate.index_select(1, segments.distance.flatten()).view(self.heads * count, -1)  # (H n, S)
        bias = (gates @ group.slot).unflatten(1, (self.heads, count))  # (m, H, n, W)
        for side, part in enumerate(segments.far):
            some, columns = bias[..., part.columns], marks[:, :, None, part.columns]
            some.addcmul_(part.pairs, columns[..., 0] * BITS)
            least = self.least[side][segments.row, :, segments.number]  # (m, n, H), the lowest rank that a segment sees
            dropped = columns[..., 1 + side] < least.transpose(1, 2).unsqueeze(-1)  # (m, H, n, w)
            some.masked_fill_(dropped.logical_and_(part.mask), HIDDEN)
        return bias

    def sums_by_distance(self, group: TileGroup, d_scores: Tensor) -> Tensor:
        """The gradient (m, H, T, n) of the queries' products with the table, from that of the scores (m, H, T, W)."""
        band = self.within(group, d_scores).unflatten(0, d_scores.shape[:2])
        return torch.cat([band, self.later_sums(group, d_scores)], dim=-1) if self.after else band
