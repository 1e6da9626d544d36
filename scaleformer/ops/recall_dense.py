"""Attention with recall by all scores of all pairs: L^2 (d + n) for n segments, the fastest for short sequences.

Written by hand, both passes, since what there is to gain are passes over the scores. Which keys a query sees, and what
its score owes to segments and salience, is the same for all queries of a segment: a matrix of segments and keys, which
comes to the scores, and its gradient back, with the product of queries and keys, as n more features of both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.autograd import own_backward
from scaleformer.ops.band import add_band, read_band
from scaleformer.ops.blocks import spread, table_gradient
from scaleformer.ops.hybrid_dense import HIDDEN
from scaleformer.ops.recall_plan import RecallPlan
from scaleformer.ops.recall_sets import Recalled
from scaleformer.ops.segment_weights import look_up


def dense_recall(
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
    """Arguments and result as in `RecallAttention`."""
    queries, keys, causal = q.shape[2], k.shape[2], plan.windows.causal
    bias = segment_bias(salience, log_gate, plan, recalled, key_mask)
    out: Tensor = _DenseRecall.apply(q, k, v, bias, table, plan.queries, key_mask, causal)
    if key_mask is None:
        return out
    if causal:
        last = torch.arange(queries, device=q.device).clamp(max=keys - 1)  # the last key that each query may see
        return out * (key_mask.cumsum(1) > 0)[:, None, last, None]  # (B, 1, L_Q, 1)
    return out * key_mask.any(1)[:, None, None, None]


def segment_bias(
    salience: Tensor, log_gate: Tensor, plan: RecallPlan, recalled: list[Recalled], key_mask: Tensor | None
) -> Tensor:
    """What is added to the score of each key for all queries of a segment: (B, H, n, L_K), `HIDDEN` where they do not
    see it. Arguments as in `dense_recall`."""
    reach = log_gate.shape[1] // 2
    number = torch.arange(plan.total, device=log_gate.device)
    distance = (plan.keys[:, None] - number[:, None]).clamp(-reach, reach)  # (B, n, L_K)
    far = distance.abs() == reach
    # Where nothing is far salience has a gradient of zero, not none: processes that train together wait for one.
    bias = torch.addcmul(look_up(log_gate, distance + reach), salience[:, :, None], far[:, None].to(log_gate.dtype))
    for x, end in zip(recalled, (-reach, reach), strict=False):
        dropped = x.rank[:, :, None] < x.least[..., None]  # (B, H, n, L_K)
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
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e), bias (B, H, n, S), table as in
        `dense_recall`, segments (B, L) of the queries, below n"""
        batch, heads, length, d = q.shape
        number = torch.arange(bias.shape[2], device=q.device)
        inside = (segments[..., None] == number).to(q.dtype)[:, None].expand(-1, heads, -1, -1)  # (B, H, L, n)
        query = torch.cat([q * d**-0.5, inside], dim=-1).flatten(0, 1)  # (X, L, d + n)
        key = torch.cat([k, bias.transpose(2, 3)], dim=-1)  # (B, H, S, d + n)
        if key_mask is not None:  # not only the scores: a pad may hold what is no number
            pads = ~key_mask[:, None, :, None]  # (B, 1, S, 1)
            key[..., :d].masked_fill_(pads, 0.0)
            v = v.masked_fill(pads, 0.0)
        key, values = key.flatten(0, 1), v.flatten(0, 1)  # (X, S, d + n), (X, S, e)
        scores = query @ key.transpose(1, 2)  # (X, L, S)
        if table is not None:
            by_distance = query[..., :d] @ spread(table, batch, heads).transpose(1, 2)  # (X, L, R or 2R)
            if causal:
                add_band(scores, by_distance, table.shape[1] - 1, 0)
            else:
                reach = table.shape[1] // 2 - 1
                scores.addcmul_(by_distance[..., -1:], torch.ones_like(scores[0]).triu_(1))
                add_band(scores, by_distance[..., :-1], reach, reach)
        if causal:
            scores.add_(torch.full_like(scores[0], HIDDEN).triu_(1))
        weights = scores.softmax(-1)
        out = weights @ values  # (X, L, e)
        ctx.save_for_backward(query, key, values, table, weights, out)
        ctx.causal, ctx.segments = causal, bias.shape[2]
        return out.view(batch, heads, length, -1)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        query, key, values, table, weights, out = ctx.saved_tensors
        batch, heads = shape = grad.shape[:2]
        d = query.shape[2] - ctx.segments
        grad = grad.flatten(0, 1)  # (X, L, e)
        d_v = (weights.transpose(1, 2) @ grad).unflatten(0, shape)
        d_scores = grad @ values.transpose(1, 2)  # (X, L, S)
        d_scores.sub_((grad * out).sum(-1, keepdim=True)).mul_(weights)
        d_query = d_scores @ key[..., :d]  # (X, L, d)
        d_key = (d_scores.transpose(1, 2) @ query).unflatten(0, shape)  # (B, H, S, d + n)
        d_table = None
        if table is not None:
            if ctx.causal:
                d_by_distance = read_band(d_scores, table.shape[1] - 1, 0)  # (X, L, R)
            else:
                reach = table.shape[1] // 2 - 1
                band = read_band(d_scores, reach, reach)
                after = d_scores.triu_(1).sum(-1, keepdim=True)  # the last use of these scores
                d_by_distance = torch.cat([band, after], dim=-1)  # (X, L, 2R)
            d_query.baddbmm_(d_by_distance, spread(table, batch, heads))
            d_table = table_gradient(d_by_distance, query[..., :d], table)
        d_q = d_query.mul_(d**-0.5).unflatten(0, shape)
        return d_q, d_key[..., :d], d_v, d_key[..., d:].transpose(2, 3), d_table, None, None, None
