"""Hybrid attention in linear time."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import horizon_of
from scaleformer.ops.hybrid.linear_windows import HybridAttention, table_of, with_counts
from scaleformer.ops.hybrid.quadratic import HIDDEN
from scaleformer.ops.segments.tiles import TilePlan, number_segments, plan_tiles, shared_plan


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

    Time for each query: the keys of 2G - 1 segments (a document of one segment is plain softmax) and d (e+1). Memory is
    linear in length where segments are of bounded length: the plan has a number for each key in the window of a tile.
    """
    q, k, u = with_counts(q, k, v, key_mask, dtype)
    reach, heads = log_gate.shape[1] // 2, q.shape[1]
    horizon, table = None if rel is None else horizon_of(rel), table_of(rel, heads, causal)
    options = near, reach, causal, horizon, far_tokens, heads, dtype

    def make() -> TilePlan:
        numbers = number_segments(query_segments, key_segments, key_mask, causal, reach)
        return plan_tiles(numbers, key_mask, *options)

    plan = shared_plan((query_segments, key_segments, key_mask), options, make)
    gate = log_gate.clamp(min=HIDDEN)  # products with it are no NaN then
    out: Tensor = HybridAttention.apply(q, k, u, table, gate, plan, phi)
    return out.to(v.dtype)
