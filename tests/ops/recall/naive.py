"""Attention with recall straight from its equation, query by query and key by key."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scaleformer.ops.common.relative_positions import horizon_of


def segment_recall_loop(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None,
    log_gate: Tensor,
    salience: Tensor,
    recency: Tensor,
    query_segments: Tensor,
    key_segments: Tensor,
    *,
    kept: int = 64,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Arguments and result as in `segment_recall_attention`."""
    near, horizon = log_gate.shape[1] // 2 - 1, 0 if rel is None else horizon_of(rel)
    each = kept if causal else math.ceil(kept / 2)
    out = v.new_zeros(*q.shape[:3], v.shape[3])
    for b, head, i in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        seen = [j for j in range(k.shape[2]) if (key_mask is None or key_mask[b, j]) and not (causal and j > i)]
        distance = {j: int(key_segments[b, j]) - int(query_segments[b, i]) for j in seen}

        def priority(j: int, sign: int, b: int = b, head: int = head) -> tuple[float, int]:
            toward = float(recency[head]) * int(key_segments[b, j])
            return float(salience.detach()[b, head, j]) + sign * toward, sign * j

        before = sorted((j for j in seen if distance[j] < -near), key=lambda j: priority(j, 1), reverse=True)
        after = sorted((j for j in seen if distance[j] > near), key=lambda j: priority(j, -1), reverse=True)
        chosen = [j for j in seen if abs(distance[j]) <= near] + before[:each] + after[:each]
        scores = []
        for j in chosen:
            key, column = k[b, head, j], min(max(distance[j], -near - 1), near + 1) + near + 1
            if rel is not None:
                key = key + (rel if rel.dim() == 2 else rel[head])[min(max(j - i, -horizon), horizon) + horizon]
            score = log_gate[head, column] + q[b, head, i] @ key / math.sqrt(len(key))
            scores.append(score + salience[b, head, j] if abs(distance[j]) > near else score)
        if scores:
            out[b, head, i] = torch.stack(scores).softmax(0) @ v[b, head, chosen]
    return out
