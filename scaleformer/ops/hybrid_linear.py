"""Hybrid attention in linear time: windows of softmax where segments are near, states where they are far."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.hybrid_far import far_sums
from scaleformer.ops.hybrid_near import BITS, NearAttention, plan_near
from scaleformer.ops.hybrid_plan import number_segments


def linear_hybrid(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None,
    log_gate: Tensor,
    query_segments: Tensor,
    key_segments: Tensor,
    near: int,
    causal: bool,
    key_mask: Tensor | None,
    far_tokens: float,
    phi: FeatureMap,
    dtype: torch.dtype,
) -> Tensor:
    """Arguments and result as in `segment_hybrid_attention`; rel (1 or H, 2R+1, d); rel and log_gate in `dtype`.

    Time for each query: the keys of 2N + 1 segments (a document of one segment is plain softmax) and d (e+1); memory
    linear in length.
    """
    if key_mask is not None:  # not only the scores: a pad may hold what is no number
        pads = ~key_mask[:, None, :, None]  # (B, 1, L_K, 1)
        k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
    result = v.dtype
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    numbers = number_segments(query_segments, key_segments, key_mask, causal, log_gate.shape[1] // 2)
    far = None
    if numbers.total > near + 1:
        far = far_sums(q, k, v, log_gate, numbers, key_mask, near, causal, far_tokens, phi)  # (B, H, L_Q, e+1)
    table = None if rel is None else rel.expand(q.shape[1], -1, -1)  # (H, 2R+1, d)
    plan = plan_near(numbers, key_mask, near, causal, q.shape[1], rel is not None)
    out: Tensor = NearAttention.apply(q * (BITS * q.shape[3] ** -0.5), k, v, table, log_gate, far, plan)
    return out.to(result)
