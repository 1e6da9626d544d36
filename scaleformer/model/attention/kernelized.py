"""Kernelized attention without positions of its own: the linear transformer."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.base import Attention, beams_as_queries, queries_as_beams
from scaleformer.model.attention.options import one_of
from scaleformer.ops import (
    FEATURE_MAPS,
    CausalState,
    CrossState,
    causal_init,
    causal_step,
    cross_state,
    cross_step,
    relative_kernel_attention,
)
from scaleformer.ops.common.checks import ALGORITHMS
from scaleformer.ops.segments.layout import SegmentLayout


class KernelizedAttention(Attention):
    """out_i = sum_j phi(Q_i).phi(K_j) V_j / sum_j phi(Q_i).phi(K_j), with phi(x) = elu(x) + 1 unless told otherwise.

    Cost O((L + S) d^2) time and O(L + S) memory; decoding keeps one d x (d+1) matrix a head.
    Source: [Katharopoulos 2020, equations 4 to 6], with sinusoidal positions added to the embeddings.

    feature_map  phi: "elu1", "relu", "squared_relu" or "exp". A query of which relu leaves nothing gathers zeros
    algorithm    "auto", "linear", "quadratic" or "memory": the same numbers at another cost
    """

    absolute_positions: ClassVar[bool] = True

    def __init__(self, site: str, width: int, heads: int, feature_map: str = "elu1", algorithm: str = "auto") -> None:
        super().__init__(site, width, heads)
        one_of(FEATURE_MAPS, feature_map=feature_map)
        one_of(ALGORITHMS, algorithm=algorithm)
        self.feature_map = feature_map
        self.algorithm = algorithm
        self.feature_width = self.head_width  # of what phi is applied to

    def relative(self) -> Tensor | None:
        """The raw relative embeddings (H, 2R+1, d), or None for a mechanism without."""
        return None

    def features(self, x: Tensor, asks: bool, first: int) -> Tensor:
        """What phi is applied to, from queries or keys (..., L, d) of positions first .. first + L - 1."""
        return x

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        return relative_kernel_attention(
            self.features(query, True, 0),
            self.features(key, False, 0),
            value,
            self.relative(),
            causal=self.causal,
            key_mask=None if self.causal else layout.mask,  # pads stand at the end: no real query sees one
            feature_map=self.feature_map,
            algorithm=self.algorithm,
        )  # (B, H, L, d)

    def empty_state(self, rows: int, like: Tensor) -> CausalState:
        d, dtype = self.head_width, torch.promote_types(like.dtype, torch.float32)
        options = (self.relative(), like.device, self.feature_map, dtype)
        return causal_init(rows, self.heads, self.feature_width, d, *options)

    def memory_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> CrossState:
        return cross_state(self.features(key, False, 0), value, self.relative(), key_mask, self.feature_map)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: CausalState
    ) -> tuple[Tensor, CausalState]:
        query = self.features(query[:, :, None], True, position)[:, :, 0]  # (B*K, H, d)
        key = self.features(key[:, :, None], False, position)[:, :, 0]  # (B*K, H, d)
        return causal_step(query, key, value, self.relative(), state, self.feature_map)

    def attend_memory(self, query: Tensor, position: int, segments: Tensor, state: CrossState) -> Tensor:
        beams = self.features(beams_as_queries(query, len(state.memory)), True, position)  # (B, H, K, d)
        out = cross_step(beams, position, self.relative(), state, self.feature_map)  # (B, H, K, d)
        return queries_as_beams(out).to(query.dtype)  # features may be of another type

    def reorder(self, state: CausalState | CrossState, rows: Tensor) -> CausalState | CrossState:
        return state.select(rows) if isinstance(state, CrossState) else state.reorder(rows)
