"""Hybrid attention in linear time."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.hybrid_plan import Plan, number_segments, plan_windows, shared_plan
from scaleformer.ops.hybrid_windows import WindowAttention
from scaleformer.ops.relative_position import bidirectional_table, causal_tables, horizon_of


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

    Time for each query: the keys of 2G - 1 segments (a document of one segment is plain softmax) and d (e+1); memory
    linear in length.
    """
    if key_mask is not None:  # not only the scores: a pad may hold what is no number
        pads = ~key_mask[:, None, :, None]  # (B, 1, L_K, 1)
        k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
    ones = torch.ones_like(v[:, :1, :, :1]) if key_mask is None else key_mask[:, None, :, None].to(v.dtype)
    u = torch.cat([v, ones.expand(*v.shape[:3], 1)], dim=-1).to(dtype)  # (B, H, L_K, e+1)
    reach, heads = log_gate.shape[1] // 2, q.shape[1]
    horizon = table = None
    if rel is not None:
        horizon, rel = horizon_of(rel), rel.expand(heads, -1, -1)  # (H, 2R+1, d)
        table = torch.cat(causal_tables(rel)[::-1], dim=1) if causal else bidirectional_table(rel)
    options = near, reach, causal, horizon, far_tokens, heads, dtype

    def make() -> Plan:
        numbers = number_segments(query_segments, key_segments, key_mask, causal, reach)
        return plan_windows(numbers, key_mask, *options)

    plan = shared_plan((query_segments, key_segments, key_mask), options, make)
    out: Tensor = WindowAttention.apply(q.to(dtype), k.to(dtype), u, table, log_gate, plan, phi)
    return out.to(v.dtype)
