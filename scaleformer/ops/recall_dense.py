"""Attention with recall by all scores of all pairs: quadratic in length, and the fastest for short sequences."""

from __future__ import annotations

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
    """Arguments as in `RecallAttention`, rel (1 or H, 2R+1, d) in place of its table. -> (B, H, L_Q, e)"""
    width, keys = q.shape[3], k.shape[2]
    scaled = q * width**-0.5
    scores = scaled @ k.transpose(-1, -2)  # (B, H, L_Q, L_K)
    if rel is not None:
        scores = scores + relative_scores(scaled @ rel.transpose(-1, -2), keys)  # (B, H, L_Q, L_K)
    reach, real = log_gate.shape[1] // 2, u[:, :1, None, :, -1] > 0  # (B, 1, 1, L_K)
    distance = (plan.keys[:, None, :] - plan.queries[:, :, None]).clamp(-reach, reach)  # (B, L_Q, L_K)
    visible = real.expand(-1, -1, q.shape[2], -1)
    if plan.windows.causal:
        visible = visible.tril()
    scores = scores + look_up(log_gate, distance + reach)
    far = distance.abs()[:, None] == reach  # (B, 1, L_Q, L_K)
    scores, seen = scores + far * salience[:, :, None], visible
    for x, end in zip(recalled, (-reach, reach), strict=False):
        dropped = x.rank[:, :, None] < x.threshold[..., None]  # (B, H, L_Q, L_K)
        seen = seen & ~(dropped & (distance == end)[:, None])
    out = scores.masked_fill(~seen, HIDDEN).softmax(-1) @ u[..., :-1]  # (B, H, L_Q, e)
    return out * visible.any(-1, keepdim=True)
