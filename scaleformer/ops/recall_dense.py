"""Attention with recall by all scores of all pairs: L^2 (d + 2n) for n segments, the fastest for short sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.hybrid_dense import HIDDEN
from scaleformer.ops.recall_plan import RecallPlan
from scaleformer.ops.recall_sets import Recalled
from scaleformer.ops.relative_position import relative_scores
from scaleformer.ops.segment_weights import look_up


def dense_recall(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    salience: Tensor,
    log_gate: Tensor,
    plan: RecallPlan,
    recalled: list[Recalled],
    rel: Tensor | None,
) -> Tensor:
    """Arguments as in `RecallAttention`, rel (1 or H, 2R+1, d) in place of its table. -> (B, H, L_Q, e)

    A key stands in one of n segments, so what a score owes to segments is a product, too: of n more features of the
    query, what it makes of a key in each of them, and n of the key, 1 in its own. Thus gate, salience and pads come
    with the product of queries and keys, and cost no pass over the scores (more than such passes would, in segments of
    fewer than some six tokens).
    """
    heads, queries, keys, causal = q.shape[1], q.shape[2], k.shape[2], plan.windows.causal
    reach, real = log_gate.shape[1] // 2, u[..., -1:] > 0  # (B, H, L_K, 1)
    number = torch.arange(plan.total, device=q.device)
    distance = (number - plan.queries[..., None]).clamp(-reach, reach)  # (B, L_Q, n)
    inside = (plan.keys[..., None] == number).to(q.dtype)[:, None].expand(-1, heads, -1, -1)  # (B, H, L_K, n)
    scaled = q * q.shape[3] ** -0.5
    query = [scaled, look_up(log_gate, distance + reach)]  # (B, H, L_Q, d | n)
    key = [k, inside]  # (B, H, L_K, d | n)
    if recalled:
        far = (distance.abs() == reach).to(q.dtype)  # (B, L_Q, n)
        query.append(far[:, None].expand(-1, heads, -1, -1))
        key.append(inside * salience[..., None])
    query.append(scaled.new_ones(()).expand(*scaled.shape[:3], 1))
    # Where nothing is far salience has a gradient of zero, not none: processes that train together wait for one.
    key.append(torch.where(real, 0.0 * salience[..., None], HIDDEN))
    scores = torch.cat(query, dim=-1) @ torch.cat(key, dim=-1).transpose(-1, -2)  # (B, H, L_Q, L_K)
    if rel is not None:
        scores.add_(relative_scores(scaled @ rel.transpose(-1, -2), keys))
    # Past autograd: what is hidden has no weight, and so no gradient that would have to be cleared once more.
    logits = scores.detach()
    if causal:
        logits.add_(torch.full_like(logits[0, 0], HIDDEN).triu_(1))
    for x, end in zip(recalled, (-reach, reach), strict=False):
        dropped = x.rank[:, :, None] < x.threshold[..., None]  # (B, H, L_Q, L_K)
        at_end = (distance == end).gather(2, plan.keys[:, None].expand(-1, queries, -1))  # (B, L_Q, L_K)
        logits.masked_fill_(dropped & at_end[:, None], HIDDEN)
    out = scores.softmax(-1) @ u[..., :-1]  # (B, H, L_Q, e)
    if causal:
        last = torch.arange(queries, device=q.device).clamp(max=keys - 1)  # the last key that each query may see
        return out * (real.cumsum(2) > 0)[:, :, last]  # (B, H, L_Q, 1)
    return out * real.any(2, keepdim=True)
