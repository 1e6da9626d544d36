"""Attention with recall from the scores of all pairs: O(L^2 (d + n)) for n segments, the fastest for short sequences.

Both passes are written by hand to save passes over the scores. All queries of a segment see the same keys and share the
terms for segments and salience: a matrix of segments by keys. A product with the one-hot segments of the queries adds
it to the scores; the backward pass returns its gradient the same way.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.bands import add_band, read_band
from scaleformer.ops.common.blocks import spread, table_gradient
from scaleformer.ops.common.sums import softmax_gradient
from scaleformer.ops.recall.plan import RecallPlan
from scaleformer.ops.recall.selection import Recalled
from scaleformer.ops.segments.gate import HIDDEN, look_up

# In each part of the causal scores, at least: on a CPU smaller parts cost more than they save. More on a GPU, for fewer
# operator calls.
FEWEST_ROWS = {"cpu": 128, "cuda": 1024}


def dense_recall(
    q: Tensor, k: Tensor, v: Tensor, salience: Tensor, log_gate: Tensor, plan: RecallPlan,
    recalled: list[Recalled | None], table: Tensor | None, key_mask: Tensor | None,
) -> Tensor:  # fmt: skip
    """Arguments and result as in `RecallAttention`; `recalled` is None for a side where all keys are kept."""
    keys, causal = k.shape[2], plan.tiles.causal
    out: Tensor
    if plan.own:
        hidden, some = plan.own
        out = _DenseRecall.apply(q, k, v, hidden, table, None, key_mask, causal)
        return out if some is None else out.masked_fill(~some, 0.0)
    bias = segment_bias(salience, log_gate, plan, recalled, key_mask)
    out = _DenseRecall.apply(q, k, v, bias, table, plan.dense.inside, key_mask, causal)
    is_open = q.device.type == "cpu" and bool((log_gate > HIDDEN / 2).all())  # on a GPU this would synchronise
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
    """The term added to the score of each key, for all queries of a segment: (B, H, n, L_K), `HIDDEN` where they do not
    see the key. Arguments as in `dense_recall`."""
    pairs = plan.dense
    # Where nothing is far, salience gets a zero gradient and not None: in distributed training the others wait for it.
    bias = torch.addcmul(look_up(log_gate, pairs.column), salience[:, :, None], pairs.far)
    for kept, beyond in zip(recalled, pairs.beyond, strict=False):
        if kept is not None:
            dropped = kept.rank[:, :, None] < kept.least[..., None]  # (B, H, n, L_K)
            bias = bias.masked_fill(dropped & beyond, HIDDEN)
    return bias if key_mask is None else bias.masked_fill(~key_mask[:, None, None], HIDDEN)


class _DenseRecall(torch.autograd.Function):
    """Scores with their relative terms, softmax, and the weighted means of the values."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, table: Tensor | None, inside: Tensor | None,
        key_mask: Tensor | None, causal: bool,
    ) -> Tensor:  # fmt: skip
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e), bias (B, H, n, S), table as in `dense_recall`, inside
        (X, L, n) of `DenseSegments`; or None for a bias without gradient (B, 1, L, S)"""
        batch, heads, length, d = q.shape
        if key_mask is not None:  # masking the scores is not enough: pads may hold NaN
            pads = ~key_mask[:, None, :, None]  # (B, 1, S, 1)
            k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
        query, key, values = (x.flatten(0, 1) for x in (q, k, v))
        bias = bias if inside is None else bias.flatten(0, 1)
        by_distance = None
        if table is not None:
            scaled = spread(table * d**-0.5, batch, heads)  # (X, R or 2R, d)
            by_distance = query.to(table.dtype) @ scaled.transpose(1, 2)  # (X, L, R or 2R)
        weights, out = [], bias.new_empty(len(values), length, values.shape[2])
        for rows, end in _parts(length, key.shape[1], causal, q.device):
            scores = (query[:, rows] @ key[:, :end].transpose(1, 2)).to(bias.dtype)  # (X, l, s)
            if inside is None:
                scores.mul_(d**-0.5).view(batch, heads, *scores.shape[1:]).add_(bias[:, :, rows, :end])
            else:
                scores.baddbmm_(inside[:, rows], bias[..., :end], beta=d**-0.5)
            if by_distance is not None:
                _add_table(scores, by_distance[:, rows], rows.start, causal)
            if causal and inside is not None:
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
        d_bias = None if inside is None else inside.new_zeros(len(inside), inside.shape[2], key.shape[1])  # (X, n, S)
        d_by_distance = None if table is None else table.new_empty(*query.shape[:2], table.shape[1])
        parts = _parts(query.shape[1], key.shape[1], ctx.causal, query.device)
        for (rows, end), weight in zip(parts, weights, strict=True):
            _add_product(d_v[:, :end], weight.transpose(1, 2), grad[:, rows])
            d_weights = (grad[:, rows] @ values[:, :end].transpose(1, 2)).to(dtype)  # (X, l, s)
            d_scores = softmax_gradient(d_weights, weight)
            factor = d_scores.to(key.dtype)
            d_query[:, rows] = factor @ key[:, :end]
            _add_product(d_key[:, :end], factor.transpose(1, 2), query[:, rows])
            if d_bias is not None:
                d_bias[..., :end].baddbmm_(inside[:, rows].transpose(1, 2), d_scores)
            if d_by_distance is not None:
                d_by_distance[:, rows] = _sums_by_distance(d_scores, d_by_distance.shape[2], rows.start, ctx.causal)
        d_table = None
        if table is not None and d_by_distance is not None:
            d_query.baddbmm_(d_by_distance, spread(table, batch, heads))
            d_table = table_gradient(d_by_distance, query.to(dtype), table) * d**-0.5
        d_bias = None if d_bias is None else d_bias.unflatten(0, shape)
        d_q, d_k, d_v = (x.unflatten(0, shape) for x in (d_query.mul_(d**-0.5), d_key.mul_(d**-0.5), d_v))
        return d_q, d_k, d_v, d_bias, d_table, None, None, None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to a total that may have a higher precision."""
    if total.dtype == b.dtype:
        total.baddbmm_(a, b)
    else:
        total.add_(a @ b)


def _parts(queries: int, keys: int, causal: bool, device: torch.device) -> list[tuple[slice, int]]:
    """Slices of queries to compute together, and the most keys that each slice sees (fewer than all if causal)."""
    fewest = FEWEST_ROWS.get(device.type, FEWEST_ROWS["cuda"])
    count = max(1, min(queries, keys) // fewest) if causal else 1
    starts = [queries * part // count for part in range(count + 1)]
    return [(slice(a, b), min(b, keys) if causal else keys) for a, b in pairwise(starts)]


def _add_table(scores: Tensor, by_distance: Tensor, first: int, causal: bool) -> None:
    """Add the relative terms (X, l, R or 2R) of the queries from position `first` on to scores (X, l, s), in place."""
    count = by_distance.shape[2]
    if causal:
        add_band(scores, by_distance, count - 1 - first, first)
        return
    reach = count // 2 - 1
    scores.addcmul_(by_distance[..., -1:], torch.ones_like(scores[0]).triu_(1))
    add_band(scores, by_distance[..., :-1], reach, reach)


def _sums_by_distance(d_scores: Tensor, count: int, first: int, causal: bool) -> Tensor:
    """The gradient of by_distance (X, l, count) of `_add_table`, from that of the scores (X, l, s), overwritten."""
    if causal:
        return read_band(d_scores, count - 1 - first, first)
    reach = count // 2 - 1
    band = read_band(d_scores, reach, reach)
    later = d_scores.mul_(torch.ones_like(d_scores[0]).triu_(1))  # `triu_` itself takes longer
    return torch.cat([band, later.sum(-1, keepdim=True)], dim=-1)
