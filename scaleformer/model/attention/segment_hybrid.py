"""Softmax inside the matching segment and those near it, the gated kernel for the rest: our own, also linear."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scaleformer.model.attention.base import Attention, beams_as_queries, queries_as_beams
from scaleformer.model.attention.options import at_least, log_gate, one_of, relative_embedding
from scaleformer.ops import FEATURE_MAPS
from scaleformer.ops.hybrid.attention import HYBRID_ALGORITHMS, segment_hybrid_attention
from scaleformer.ops.hybrid.decoding import hybrid_causal_init, hybrid_causal_step
from scaleformer.ops.hybrid.decoding_cross import hybrid_cross_state, hybrid_cross_step


class SegmentHybridAttention(Attention):
    """out_i = sum_j s_ij V_j / sum_j s_ij, where x = sigma_j - tau_i is the distance in segments and

        s_ij = exp(log g(x) + Q_i . (K_j + P_clip(j-i, -R, R)) / sqrt(d))   for |x| <= near,
        s_ij = w_i(x) phi(Q_i) . phi(K_j) / d                               for the rest of the document.

    So it is as sharp as softmax where a token finds most of what it needs, and sees the whole document at a cost that
    is linear in its length. g is learned for each head and distance up to G segments, and w as in `segment_gated`:
    what is farther weighs as much as `far_tokens` tokens at most. No P in cross-attention.

    near        within how many segments of the query's own the scores are exact; 0 is the own segment alone
    horizon, reach, slope, far_tokens, feature_map  as in `SegmentGatedAttention`
    algorithm   as in `segment_hybrid_attention`
    """

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        near: int = 3,
        horizon: int = 16,
        reach: int = 4,
        slope: float = 1.0,
        far_tokens: float = 20,
        feature_map: str = "elu1",
        algorithm: str = "auto",
    ) -> None:
        super().__init__(site, width, heads)
        at_least(1, horizon=horizon, reach=reach, far_tokens=far_tokens)
        one_of(FEATURE_MAPS, feature_map=feature_map)
        one_of(HYBRID_ALGORITHMS, algorithm=algorithm)
        if not 0 <= near < reach:
            raise ValueError(f"model.attention.near is {near}: it must be at least 0 and below reach, {reach} segments")
        self.near = near
        self.far_tokens = far_tokens
        self.feature_map = feature_map
        self.algorithm = algorithm
        if site != "cross":
            self.relative_embedding = relative_embedding(heads, horizon, self.head_width)
        self.log_gate = log_gate(heads, reach, slope)

    def relative(self) -> Tensor | None:
        return None if self.site == "cross" else self.relative_embedding

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor,
        query_segments: Tensor,
        key_segments: Tensor,
    ) -> Tensor:
        return segment_hybrid_attention(
            query,
            key,
            value,
            self.relative(),
            self.log_gate,
            query_segments,
            key_segments,
            near=self.near,
            causal=self.causal,
            key_mask=key_mask,  # in causal attention too: pads in the last segment would cost as much as keys
            far_tokens=self.far_tokens,
            feature_map=self.feature_map,
            algorithm=self.algorithm,
        )  # (B, H, L, d)

    def empty_state(self, rows: int, like: Tensor) -> Any:
        d, dtype = self.head_width, torch.promote_types(like.dtype, torch.float32)
        options = (self.near, like.device, self.far_tokens, self.feature_map, dtype)
        return hybrid_causal_init(rows, self.heads, d, d, self.log_gate, *options)

    def memory_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> Any:
        options = (self.near, self.far_tokens, self.feature_map)
        return hybrid_cross_state(key, value, self.log_gate, key_segments, key_mask, *options)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        return hybrid_causal_step(query, key, value, self.relative(), segments, state)

    def attend_memory(self, query: Tensor, position: int, segments: Tensor, state: Any) -> Tensor:
        beams = beams_as_queries(query, state.documents)  # (B, H, K, d)
        return queries_as_beams(hybrid_cross_step(beams, segments.view(state.documents, -1), state))

    def reorder(self, state: Any, rows: Tensor) -> Any:
        return state.select(rows) if self.site == "cross" else state.reorder(rows)
