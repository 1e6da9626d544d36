"""Hybrid attention in linear time: windows of keys around tiles of queries, and one state for all that lies outside.

Queries are taken in tiles of consecutive positions, whatever segments these lie in, and each tile sees one window of
keys: those of the segments that are less than G from any of its queries. In it both forms of score are made of every
pair, the exact one as a logarithm. Which of them counts, and its gate, is one small product more: (gates of a query by
slot) times (which slot a key is in), where the slots are the segments of the window. All keys outside of the window are
at least G away from every query of the tile: one sum of phi(k) (x) [v, 1] over those before and one over those after.
Tiles with windows of like width are worked on together. The backward pass makes the scores again, from the logarithm of
each query's denominator ([Dao 2022], Algorithm 4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.blocks import running
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import bidirectional_table, causal_tables
from scaleformer.ops.hybrid.join import BITS, inverse_power
from scaleformer.ops.hybrid.quadratic import HIDDEN
from scaleformer.ops.segments.tiles import BLOCK, Step, TilePlan
from scaleformer.ops.segments.windows import (
    Rows,
    Windows,
    add_keys,
    from_blocks,
    from_tiles,
    product,
    to_blocks,
    to_tiles,
)


def with_counts(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and [v, 1] in `dtype`, zeros at pads."""
    if key_mask is not None:  # not only the scores: a pad may hold what is no number
        pads = ~key_mask[:, None, :, None]  # (B, 1, L_K, 1)
        k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
    ones = torch.ones_like(v[:, :1, :, :1]) if key_mask is None else key_mask[:, None, :, None].to(v.dtype)
    u = torch.cat([v, ones.expand(*v.shape[:3], 1)], dim=-1).to(dtype)  # (B, H, L_K, e+1)
    return q.to(dtype), k.to(dtype), u


def table_of(rel: Tensor | None, heads: int, causal: bool) -> Tensor | None:
    """The table of `HybridAttention`, for each head, from rel (1 or H, 2R+1, d)."""
    if rel is None:
        return None
    rel = rel.expand(heads, -1, -1)  # (H, 2R+1, d)
    return torch.cat(causal_tables(rel)[::-1], dim=1) if causal else bidirectional_table(rel)


class HybridAttention(torch.autograd.Function):
    """Near scores, far scores and the state outside, under one denominator."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        u: Tensor,
        table: Tensor | None,
        log_gate: Tensor,
        plan: TilePlan,
        phi: FeatureMap,
    ) -> Tensor:
        """q (B, H, L_Q, d); k (B, H, L_K, d), u (B, H, L_K, e+1), [v, 1], zeros at pads; log_gate (H, 2G+1). All of one
        dtype. -> (B, H, L_Q, e)

        table (H, n, d): that of `bidirectional_table`, n = 2R+1; causal, the near and the far one of `causal_tables`,
        n = R+1
        """
        work = _Work(q, k, u, table, log_gate, plan, phi)
        count, heads, size, _ = work.q.shape
        e = u.shape[3] - 1
        out, log_total = u.new_empty(count, heads, size, e), u.new_empty(count, heads, size, 1)
        states = work.states()
        for step in plan.steps:
            p = work.scores(step)
            top, outer = p.scores.amax(-1, keepdim=True), None  # (m, H, T, 1)
            if p.scale is not None:
                total = torch.zeros_like(top)
                for edge in p.edges:
                    total += edge.kernel.mul_(edge.weights).sum(-1, keepdim=True)
                if states is not None:
                    outer = product(p.features, work.state_of(step, states)[0]).mul_(p.scale)  # (m, H, T, e+1)
                    total += outer[..., e:]
                top = torch.maximum(top, total.log2_())
            none = top < HIDDEN / 2
            top.masked_fill_(none, 0.0)
            weights = p.scores.sub_(top).exp2_()  # (m, H, T, W)
            share = inverse_power(top)  # (m, H, T, 1)
            for edge in p.edges:
                weights[..., edge.columns].addcmul_(edge.kernel, share)
            sums = product(weights, p.u)  # (m, H, T, e+1)
            if outer is not None:
                sums.addcmul_(outer, share)
            totals = sums[..., e:].contiguous()
            out.index_copy_(0, step.tiles, sums[..., :e] / totals.masked_fill(none, 1.0))
            log_total.index_copy_(0, step.tiles, totals.log2_().add_(top).masked_fill_(none, float("inf")))
        ctx.save_for_backward(q, k, u, table, log_gate, out, log_total)
        ctx.options = plan, phi
        return from_tiles(out, q.shape[0], q.shape[2])

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, u, table, log_gate, out, log_total = ctx.saved_tensors
        plan, phi = ctx.options
        work = _Work(q, k, u, table, log_gate, plan, phi)
        d, e, reach = q.shape[3], u.shape[3] - 1, log_gate.shape[1] // 2
        d_q, d_k = torch.empty_like(work.q), k.new_zeros(*work.blocks.shape[:2], d)
        d_fq, d_fk = d_q, d_k  # where nothing is far they are not used
        if plan.scale is not None:
            d_fq, d_fk = torch.empty_like(d_q), torch.zeros_like(d_k)
        d_u = u.new_zeros(*work.blocks.shape[:2], e + 1)
        d_gate = log_gate.new_zeros(len(log_gate), 2 * reach + 2)
        d_table = None if table is None else torch.zeros_like(table)
        states = work.states()
        d_states = None if states is None else [torch.zeros_like(x) for x in states]
        grad = to_tiles(grad, out.shape[2])  # (M, H, T, e)
        d_sums = torch.cat([grad, -(grad * out).sum(-1, keepdim=True)], dim=-1)  # (M, H, T, e+1), times the totals
        for step in plan.steps:
            d_sum, log_totals = (x.index_select(0, step.tiles) for x in (d_sums, log_total))
            share = inverse_power(log_totals)  # (m, H, T, 1)
            p = work.scores(step, share)
            near = p.scores.sub_(log_totals).exp2_()  # (m, H, T, W), the near weights
            d_scores = product(d_sum, p.u.transpose(-1, -2))  # (m, H, T, W), of what a weight is multiplied by
            far = [edge.kernel * edge.weights for edge in p.edges]  # (m, H, T, w) each
            d_edges = [edge.weights.mul_(d_scores[..., edge.columns]) for edge in p.edges]
            d_near = d_scores.mul_(near)  # (m, H, T, W)
            for edge, weights in zip(p.edges, far, strict=True):
                near[..., edge.columns] += weights
            add_keys(d_u, p.blocks, near, d_sum)
            d_query = product(d_near, p.keys)  # (m, H, T, d)
            add_keys(d_k, p.blocks, d_near, p.query)
            if table is not None and d_table is not None:
                by_distance = work.sums_by_distance(step, d_near)  # (m, H, T, n)
                d_query += by_distance @ table
                d_table += (by_distance.transpose(-1, -2) @ p.query).sum(0)
            d_q.index_copy_(0, step.tiles, d_query)
            if p.scale is not None:
                d_feature = torch.zeros_like(d_query)
                for edge, d_edge in zip(p.edges, d_edges, strict=True):
                    d_feature += product(d_edge, edge.keys)
                    add_keys(d_fk, edge.blocks, d_edge, p.features)
                    d_near[..., edge.columns].addcmul_(d_edge, edge.kernel)  # of the gates, near and far
                if states is not None and d_states is not None:
                    outer = d_sum.mul_(share * p.scale)  # (m, H, T, e+1)
                    state, parts = work.state_of(step, states)
                    d_feature += product(outer, state.transpose(-1, -2))
                    d_state = product(p.features.transpose(-1, -2), outer)  # (m, H, d, e+1)
                    for (side, gate, chosen, where), d_side in zip(parts, d_states, strict=True):
                        d_side.flatten(0, 1).index_add_(0, where, (d_state * gate).flatten(0, 1))
                        d_gate[:, side] += (d_state * chosen).sum((0, 2, 3)) * gate[:, 0, 0]
                d_fq.index_copy_(0, step.tiles, d_feature)
            gates = torch.bmm(d_near.flatten(1, 2), step.slot.transpose(-1, -2))  # (m, H T, S)
            gates = gates.unflatten(1, d_near.shape[1:3]).transpose(0, 1).flatten(1)  # (H, m T S)
            d_gate.scatter_add_(1, step.distance.flatten().expand_as(gates), gates)
        if d_states is not None:
            work.add_state_gradients(d_states, d_fk, d_u)
        d_q, d_k = from_tiles(d_q * d**-0.5, *q.shape[::2]), from_blocks(d_k, k) / BITS
        if plan.scale is not None:
            d_q += from_tiles(d_fq.mul_(phi.slope_of_value(work.fq)), *q.shape[::2])
            fk = from_blocks(work.blocks, k)[..., d : 2 * d]  # (B, H, L_K, d)
            d_k += phi.slope_of_value(fk) * from_blocks(d_fk, k)
        d_table = None if d_table is None else d_table / BITS
        return d_q, d_k, from_blocks(d_u, u), d_table, d_gate[:, :-1], None, None


class _Edge(NamedTuple):
    """A part of the windows, w keys wide, with far keys in it.

    blocks (m, H, w/32); keys (m, H, w, d), phi(k); kernel (m, H, T, w), phi(q).phi(k), and the weight of each
    """

    columns: slice
    blocks: Tensor
    keys: Tensor
    kernel: Tensor
    weights: Tensor


class _Scores(NamedTuple):
    """What a step works on: m tiles of T queries and W keys.

    blocks (m, H, W/32) where the keys stand; query, features (m, H, T, d), the latter phi(q); keys (m, H, W, d);
    u (m, H, W, e+1); scores (m, H, T, W), near ones, to the base of 2, gates among them; scale (m, 1, T, 1), None where
    there is nothing but near ones
    """

    blocks: Tensor
    query: Tensor
    features: Tensor
    keys: Tensor
    u: Tensor
    scores: Tensor
    edges: list[_Edge]
    scale: Tensor | None


class _Work(Windows):
    """The tensors of a call, and the scores of a step made from them: in both passes."""

    def __init__(
        self, q: Tensor, k: Tensor, u: Tensor, table: Tensor | None, log_gate: Tensor, plan: TilePlan, phi: FeatureMap
    ) -> None:
        far = plan.scale is not None
        reach = log_gate.shape[1] // 2
        distance = torch.arange(-reach, reach + 1, device=q.device)
        is_near = distance.abs() <= plan.near
        hidden = is_near | (distance > 0) if plan.causal else is_near
        band = 0 if table is None else table.shape[1] - (1 if plan.causal else 2)
        super().__init__(q * (BITS * q.shape[3] ** -0.5), band, plan, q.dtype)
        self.blocks = to_blocks(k, phi(k), u) if far else to_blocks(k, u)
        self.rows = Rows(self.blocks, self.heads, plan)
        self.table = table
        self.gate = functional.pad(torch.where(is_near, log_gate * BITS, HIDDEN), (0, 1), value=HIDDEN)  # (H, 2G+2)
        self.fq = to_tiles(phi(q), plan.queries) if far else self.q
        self.far_gate = functional.pad(log_gate.exp().masked_fill(hidden, 0.0) / self.width, (0, 1))  # (H, 2G+2)

    def scores(self, step: Step, share: Tensor | None = None) -> _Scores:
        """Far weights times `share` (m, H, T, 1)."""
        plan, d = self.plan, self.width
        blocks = self.block_numbers(step)
        rows = self.rows.gather(blocks)  # (m, H, W, d + d + e+1)
        keys = rows[..., :d]
        query, scores = self.exact(step, keys)
        if plan.scale is None:
            return _Scores(blocks, query, query, keys, rows[..., d:], scores, [], None)
        features, scale = self.fq.index_select(0, step.tiles), plan.scale.index_select(0, step.tiles)  # (m, T, 1)
        beyond = (step.distance == 0) | (step.distance == self.far_gate.shape[1] - 2)  # (m, T, S), |x| >= G
        gates = self.by_slot(self.far_gate, step) * torch.where(beyond, scale, 1.0)[:, None]
        if share is not None:
            gates = gates * share
        gates = gates.flatten(1, 2)  # (m, H T, S)
        edges = []
        for first, last in step.edges:
            columns = slice(first * BLOCK, last * BLOCK)
            feature_keys = rows[:, :, columns, d : 2 * d]  # (m, H, w, d)
            kernel = product(features, feature_keys.transpose(-1, -2))  # (m, H, T, w)
            weights = torch.bmm(gates, step.slot[..., columns]).view_as(kernel)
            edges.append(_Edge(columns, blocks[..., first:last], feature_keys, kernel, weights))
        return _Scores(blocks, query, features, keys, rows[..., 2 * d :], scores, edges, scale[:, None])

    def exact(self, step: Step, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Queries (m, H, T, d) and their scores (m, H, T, W) with keys (m, H, W, d): q.(k + rel) and gates, to the base
        of 2."""
        plan = self.plan
        query = self.q.index_select(0, step.tiles)  # (m, H, T, d)
        gates, by_distance = self.by_slot(self.gate, step), None  # (m, H, T, S)
        if self.table is not None:
            by_distance = query @ self.table.transpose(-1, -2)  # (m, H, T, n)
            gates = gates + by_distance[..., self.band, None]  # what keys before the horizon have
        scores = torch.bmm(gates.flatten(1, 2), step.slot).view(*query.shape[:3], step.width)  # (m, H, T, W)
        scores.flatten(0, 1).baddbmm_(query.flatten(0, 1), keys.flatten(0, 1).transpose(-1, -2))
        if plan.causal:
            self.own(step, scores).add_(self.later * HIDDEN)
        if by_distance is not None:
            if not plan.causal:  # what those after it have, instead
                change = by_distance[..., -1:] - by_distance[..., -2:-1]  # (m, H, T, 1)
                self.own(step, scores).addcmul_(change, self.later)
                self.beyond(step, scores).add_(change)
            self.within(step, scores).add_(by_distance[..., : self.band].flatten(0, 1))
        return query, scores

    def sums_by_distance(self, step: Step, d_scores: Tensor) -> Tensor:
        """The gradient (m, H, T, n) of what a query has of the table, from that of its scores (m, H, T, W)."""
        parts = [self.within(step, d_scores).unflatten(0, d_scores.shape[:2])]
        total = d_scores.sum(-1, keepdim=True)  # (m, H, T, 1)
        if self.plan.causal:
            return torch.cat([*parts, total], dim=-1)
        after = self.later_sums(step, d_scores)
        return torch.cat([*parts, total - after, after], dim=-1)

    def by_slot(self, gate: Tensor, step: Step) -> Tensor:
        """(m, H, T, S) from gate (H, 2G+2)."""
        return gate.index_select(1, step.distance.flatten()).view(self.heads, *step.distance.shape).transpose(0, 1)

    def states(self) -> list[Tensor] | None:
        """The sums of phi(k) (x) u before each block of keys, and after it: (B H, P + 2, d, e+1) each; None where no
        window leaves anything out."""
        if not self.plan.outside:
            return None
        d, rows = self.width, self.blocks  # (B H (P + 2), 32, n)
        own = torch.bmm(rows[..., d : 2 * d].transpose(1, 2), rows[..., 2 * d :]).unflatten(0, (-1, self.plan.blocks))
        empty = torch.zeros_like(own[:, 0])
        return [running(own, empty, reverse)[0] for reverse in ((False,) if self.plan.causal else (False, True))]

    def state_of(self, step: Step, states: list[Tensor]) -> tuple[Tensor, list[tuple[int, Tensor, Tensor, Tensor]]]:
        """The state outside of the window of each tile (m, H, d, e+1), and its parts: the column of their gate, the
        gate (H, 1, 1), the sums (m, H, d, e+1) and where these stand (m H,)."""
        head = torch.arange(self.heads, device=step.tiles.device)
        total, parts = None, []
        columns = (0, self.far_gate.shape[1] - 2)
        for column, places, state in zip(columns, (self.plan.before, self.plan.after), states, strict=False):
            place, count = places[step.tiles], state.shape[1]
            where = ((place // count * self.heads)[:, None] + head) * count + (place % count)[:, None]
            chosen = state.flatten(0, 1).index_select(0, where.flatten()).unflatten(0, where.shape)
            gate = self.far_gate[:, column, None, None]
            total = chosen * gate if total is None else torch.addcmul(total, chosen, gate)
            parts.append((column, gate, chosen, where.flatten()))
        assert total is not None
        return total, parts

    def add_state_gradients(self, d_states: list[Tensor], d_fk: Tensor, d_u: Tensor) -> None:
        """Add to the gradients of phi(k) and u what comes from those of the states."""
        d_own = None
        for d_state, reverse in zip(d_states, (True, False), strict=False):
            part = running(d_state, torch.zeros_like(d_state[:, 0]), reverse)[0]
            d_own = part if d_own is None else d_own.add_(part)
        assert d_own is not None
        d, rows, d_own = self.width, self.blocks, d_own.flatten(0, 1)
        d_fk.baddbmm_(rows[..., 2 * d :], d_own.transpose(1, 2))
        d_u.baddbmm_(rows[..., d : 2 * d], d_own)
