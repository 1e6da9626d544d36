"""Attention with recall by all scores of all pairs: L^2 (d + n) for n segments, the fastest for short sequences.

Written by hand, both passes, since what there is to gain are passes over the scores. Which keys a query sees, and what
its score owes to segments and salience, is the same for all queries of a segment: a matrix of segments and keys, which
comes to the scores, and its gradient back, by a product with the segments that queries are in.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.bands import add_band, read_band
from scaleformer.ops.common.blocks import spread, table_gradient
from scaleformer.ops.recall.plan import RecallPlan
from scaleformer.ops.recall.selection import Recalled
from scaleformer.ops.segments.gate import HIDDEN, look_up

_FEWEST_ROWS = 128  # of causal scores that are made together: fewer cost more calls than they save


def dense_recall(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    salience: Tensor,
    log_gate: Tensor,
    plan: RecallPlan,
    recalled: list[Recalled | None],
    table: Tensor | None,
    key_mask: Tensor | None,
) -> Tensor:
    """Arguments and result as in `RecallAttention`; None is recalled on a side where all keys are kept."""
    keys, causal = k.shape[2], plan.tiles.causal
    bias = segment_bias(salience, log_gate, plan, recalled, key_mask)
    out: Tensor = _DenseRecall.apply(q, k, v, bias, table, plan.numbers.queries, key_mask, causal)
    is_open = q.device.type == "cpu" and bool((log_gate > HIDDEN / 2).all())  # to ask a GPU would be to wait for it
    if key_mask is None and is_open:
        return out
    visible = bias.detach() > HIDDEN / 2 if key_mask is None or not is_open else key_mask[:, None, None]
    rows = torch.arange(len(q), device=q.device)[:, None]
    segments = plan.numbers.queries.clamp(max=visible.shape[2] - 1)  # (B, L_Q)
    last = torch.arange(q.shape[2], device=q.device).clamp(max=keys - 1) if causal else keys - 1
    seen = visible.cumsum(-1).transpose(1, 2)[rows, segments, :, last] > 0  # (B, L_Q, 1 or H)
    if q.device.type == "cpu" and bool(seen.all()):
        return out
    return out.masked_fill(~seen.transpose(1, 2).unsqueeze(-1), 0.0)


def segment_bias(
    salience: Tensor, log_gate: Tensor, plan: RecallPlan, recalled: list[Recalled | None], key_mask: Tensor | None
) -> Tensor:
    """What is added to the score of each key for all queries of a segment: (B, H, n, L_K), `HIDDEN` where they do not
    see it. Arguments as in `dense_recall`."""
    reach = log_gate.shape[1] // 2
    number = torch.arange(plan.numbers.total, device=log_gate.device)
    distance = (plan.numbers.keys[:, None] - number[:, None]).clamp(-reach, reach)  # (B, n, L_K)
    far = distance.abs() == reach
    # Where nothing is far salience has a gradient of zero, not none: processes that train together wait for one.
    bias = torch.addcmul(look_up(log_gate, distance + reach), salience[:, :, None], far[:, None].to(log_gate.dtype))
    for kept, end in zip(recalled, (-reach, reach), strict=False):
        if kept is not None:
            dropped = kept.rank[:, :, None] < kept.least[..., None]  # (B, H, n, L_K)
            bias = bias.masked_fill(dropped & (distance == end)[:, None], HIDDEN)
    return bias if key_mask is None else bias.masked_fill(~key_mask[:, None, None], HIDDEN)


class _DenseRecall(torch.autograd.Function):
    """Scores, what the horizon adds to them, softmax, and the means of the values."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        table: Tensor | None,
        segments: Tensor,
        key_mask: Tensor | None,
        causal: bool,
    ) -> Tensor:
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e), bias (B, H, n, S), table as in `dense_recall`, segments
        (B, L) of the queries, below n"""
        batch, heads, length, d = q.shape
        number = torch.arange(bias.shape[2], device=q.device)
        inside = (segments[..., None] == number).to(bias.dtype)  # (B, L, n)
        inside = inside[:, None].expand(-1, heads, -1, -1).flatten(0, 1)  # (X, L, n)
        if key_mask is not None:  # not only the scores: a pad may hold what is no number
            pads = ~key_mask[:, None, :, None]  # (B, 1, S, 1)
            k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
        query, key, values, bias = (x.flatten(0, 1) for x in (q, k, v, bias))
        by_distance = None
        if table is not None:
            scaled = spread(table * d**-0.5, batch, heads)  # (X, R or 2R, d)
            by_distance = query.to(table.dtype) @ scaled.transpose(1, 2)  # (X, L, R or 2R)
        weights, out = [], bias.new_empty(len(values), length, values.shape[2])
        for rows, end in _parts(length, key.shape[1], causal):
            scores = (query[:, rows] @ key[:, :end].transpose(1, 2)).to(bias.dtype)  # (X, l, s)
            scores.baddbmm_(inside[:, rows], bias[..., :end], beta=d**-0.5)
            if by_distance is not None:
                _add_table(scores, by_distance[:, rows], rows.start, causal)
            if causal:
                own = scores[..., rows.start :]
                own += torch.full_like(own[0], HIDDEN).triu_(1)
            weights.append(scores.softmax(-1).to(values.dtype))
            out[:, rows] = weights[-1] @ values[:, :end]
        ctx.save_for_backward(query, key, values, inside, table, *weights)
        ctx.causal = causal
        return out.view(batch, heads, length, -1)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        query, key, values, inside, table, *weights = ctx.saved_tensors
        batch, heads = shape = grad.shape[:2]
        d, dtype = query.shape[2], grad.dtype
        grad = grad.flatten(0, 1).to(values.dtype)  # (X, L, e)
        d_query, d_key, d_v = (
            torch.empty_like(query, dtype=dtype),
            *(torch.zeros_like(x, dtype=dtype) for x in (key, values)),
        )
        d_bias = inside.new_zeros(len(inside), inside.shape[2], key.shape[1])  # (X, n, S)
        d_by_distance = None if table is None else table.new_empty(*query.shape[:2], table.shape[1])
        for (rows, end), weight in zip(_parts(query.shape[1], key.shape[1], ctx.causal), weights, strict=True):
            _add_product(d_v[:, :end], weight.transpose(1, 2), grad[:, rows])
            d_scores = (grad[:, rows] @ values[:, :end].transpose(1, 2)).to(dtype).mul_(weight)  # (X, l, s)
            # By the sums of these, not by the output: so they cancel whatever the products have been rounded to.
            mean = d_scores.sum(-1, keepdim=True)
            if weight.dtype != dtype:  # the sum of rounded weights is not quite 1
                weight = weight.to(dtype)
                mean /= weight.sum(-1, keepdim=True)
            d_scores.addcmul_(weight, mean, value=-1)
            factor = d_scores.to(key.dtype)
            d_query[:, rows] = factor @ key[:, :end]
            _add_product(d_key[:, :end], factor.transpose(1, 2), query[:, rows])
            d_bias[..., :end].baddbmm_(inside[:, rows].transpose(1, 2), d_scores)
            if d_by_distance is not None:
                d_by_distance[:, rows] = _sums_by_distance(d_scores, d_by_distance.shape[2], rows.start, ctx.causal)
        d_table = None
        if table is not None and d_by_distance is not None:
            d_query.baddbmm_(d_by_distance, spread(table, batch, heads))
            d_table = table_gradient(d_by_distance, query.to(dtype), table) * d**-0.5
        d_q, d_k, d_v, d_bias = (
            x.unflatten(0, shape) for x in (d_query.mul_(d**-0.5), d_key.mul_(d**-0.5), d_v, d_bias)
        )
        return d_q, d_k, d_v, d_bias, d_table, None, None, None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to a total, which may be of a higher precision."""
    if total.dtype == b.dtype:
        total.baddbmm_(a, b)
    else:
        total.add_(a @ b)


def _parts(queries: int, keys: int, causal: bool) -> list[tuple[slice, int]]:
    """Queries to be worked on together, and how many keys they see at most: in causal attention not all see all."""
    count = max(1, min(queries, keys) // _FEWEST_ROWS) if causal else 1
    starts = [queries * part // count for part in range(count + 1)]
    return [(slice(a, b), min(b, keys) if causal else keys) for a, b in pairwise(starts)]


def _add_table(scores: Tensor, by_distance: Tensor, first: int, causal: bool) -> None:
    """Add to scores (X, l, s) what queries from the place `first` on have of the table (X, l, R or 2R), in place."""
    count = by_distance.shape[2]
    if causal:
        add_band(scores, by_distance, count - 1 - first, first)
        return
    reach = count // 2 - 1
    scores.addcmul_(by_distance[..., -1:], torch.ones_like(scores[0]).triu_(1))
    add_band(scores, by_distance[..., :-1], reach, reach)


def _sums_by_distance(d_scores: Tensor, count: int, first: int, causal: bool) -> Tensor:
    """The gradient of by_distance (X, l, count) of `_add_table`, from that of the scores (X, l, s), used up."""
    if causal:
        return read_band(d_scores, count - 1 - first, first)
    reach = count // 2 - 1
    band = read_band(d_scores, reach, reach)
    return torch.cat([band, d_scores.triu_(1).sum(-1, keepdim=True)], dim=-1)
