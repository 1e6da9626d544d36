"""Kernelized attention gated by the distance in segments: our own, linear in length."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.base import beams_as_queries, queries_as_beams
from scaleformer.model.attention.options import at_least, log_gate
from scaleformer.model.attention.scaleformer import ScaleformerAttention
from scaleformer.ops import (
    segment_causal_init,
    segment_causal_step,
    segment_cross_state,
    segment_cross_step,
    segment_gated_attention,
)
from scaleformer.ops.segments.layout import SegmentLayout


class SegmentGatedAttention(ScaleformerAttention):
    """out_i = sum_j s_ij V_j / sum_j s_ij,  s_ij = g(sigma_j - tau_i) phi(Q_i).(phi(K_j) + phi(P_clip(j-i, -R, R))).

    tau_i and sigma_j are the segment numbers of query and key. g is learned for each head and distance up to G;
    all farther keys together weigh at most `far_tokens` tokens, however long the document. Cross-attention has no P:
    there the segments alone align the two sides.

    Cost O((L + S) d (d + R)) time, O(L + S) memory and d^2 numbers a segment; decoding keeps G + 2 matrices d x (d+1)
    and R values a head, and one matrix a source segment.
    With feature_map "exp" keys have the limit of `ScaleformerAttention`.
    Source: the kernel [Scaleformer]; the gate is our own. The closest published method is the sentential gate [Wu 2022]
    of random feature attention [Peng 2021], `rfa_gated`: where a segment begins, a gate read from its first token lets
    the past fade, in the decoder only. Here the weight depends on the number of segments between query and key, on both
    sides, in the encoder and in cross-attention too, and far segments share a bounded weight. The same gate works with
    exact softmax (`softmax_gated`, `segment_recall`). `g_transformer` [Bao 2021] gates between attention to the segment
    and attention to the whole document.

    reach       G, the distance in segments from which on all are equally far
    slope       the gate starts as exp(-slope_h * distance), slope_h = slope * (0.5, 1, 2, 4, repeated) over the heads
    far_tokens  the weight of all far keys together, at most, in tokens
    """

    tiles: ClassVar[int] = 600
    aside: ClassVar[int] = 16

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        horizon: int = 16,
        reach: int = 4,
        slope: float = 1.0,
        far_tokens: float = 20,
        feature_map: str = "elu1",
        algorithm: str = "auto",
    ) -> None:
        super().__init__(site, width, heads, horizon, feature_map, algorithm)
        at_least(1, reach=reach, far_tokens=far_tokens)
        if site == "cross":
            del self.relative_embedding
        self.far_tokens = far_tokens
        self.log_gate = log_gate(heads, reach, slope)

    def relative(self) -> Tensor | None:  # type: ignore[override]
        return None if self.site == "cross" else self.relative_embedding

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        return segment_gated_attention(
            self.features(query, True, 0),
            key,
            value,
            self.relative(),
            self.log_gate,
            causal=self.causal,
            layout=layout,
            far_tokens=self.far_tokens,
            feature_map=self.feature_map,
            algorithm=self.algorithm,
        )  # (B, H, L, d)

    def empty_state(self, rows: int, like: Tensor) -> Any:
        d, dtype = self.head_width, torch.promote_types(like.dtype, torch.float32)
        options = (self.relative(), self.log_gate, like.device, self.far_tokens, self.feature_map, dtype)
        return segment_causal_init(rows, self.heads, d, d, *options)

    def memory_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> Any:
        return segment_cross_state(key, value, self.log_gate, key_segments, key_mask, self.far_tokens, self.feature_map)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        query = self.features(query, True, position)
        return segment_causal_step(query, key, value, self.relative(), segments, state, self.feature_map)

    def attend_memory(self, query: Tensor, position: int, segments: Tensor, state: Any) -> Tensor:
        documents = state.documents
        beams = self.features(beams_as_queries(query, documents), True, position)  # (B, H, K, d)
        out = segment_cross_step(beams, segments.view(documents, -1), state, self.feature_map)  # (B, H, K, d)
        return queries_as_beams(out)

    def reorder(self, state: Any, rows: Tensor) -> Any:
        return state.select(rows) if self.site == "cross" else state.reorder(rows)
