"""Kernelized attention without relative positions: the linear transformer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.base import Attention, beams_as_queries, queries_as_beams
from scaleformer.model.attention.options import Algorithm, FeatureMap
from scaleformer.ops import (
    CausalState,
    CrossState,
    causal_init,
    causal_step,
    cross_state,
    cross_step,
    relative_kernel_attention,
)
from scaleformer.ops.kernel.exponents import ExponentState, exponent_attention, exponent_memory, exponent_state
from scaleformer.ops.segments.layout import SegmentLayout

State = Any  # `CausalState`, `CrossState` or `ExponentState`


class KernelizedAttention(Attention):
    """out_i = sum_j phi(Q_i).phi(K_j) V_j / sum_j phi(Q_i).phi(K_j), with phi(x) = elu(x) + 1 by default.

    Cost O((L + S) d^2) time and O(L + S) memory; decoding keeps one d x (d+1) matrix a head.
    Source: [Katharopoulos 2020, equations 4 to 6], with sinusoidal positions added to the embeddings.

    feature_map  phi: "elu1", "relu", "squared_relu" or "exp". A query that relu maps to zero gathers zeros. With "exp"
                 the exponents are used directly (`exponent_attention`) and may have any size
    algorithm    "auto", "linear", "quadratic" or "memory": the same results at different cost
    """

    absolute_positions: ClassVar[bool] = True
    #: with exponents: normalise scores jointly (True), or queries over features and keys over positions (False)
    joint: ClassVar[bool] = True

    def __init__(
        self, site: str, width: int, heads: int, feature_map: FeatureMap = "elu1", algorithm: Algorithm = "auto"
    ) -> None:
        super().__init__(site, width, heads)
        self.feature_map = feature_map
        self.algorithm = algorithm
        self.by_exponents = feature_map == "exp"
        self.feature_width = self.head_width  # width of the input of phi

    def relative(self) -> Tensor | None:
        """The raw relative embeddings (H, 2R+1, d), or None for a mechanism without them."""
        return None

    def features(self, x: Tensor, asks: bool, first: int) -> Tensor:
        """The input of phi, from queries or keys (..., L, d) of positions first .. first + L - 1."""
        return x

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        query, key = self.features(query, True, 0), self.features(key, False, 0)
        mask = None if self.causal else layout.mask  # pads are at the end: no real query sees one
        options: dict[str, Any] = {"causal": self.causal, "key_mask": mask, "algorithm": self.algorithm}
        if self.by_exponents:
            return exponent_attention(query, key, value, joint=self.joint, **options)  # (B, H, L, d)
        return relative_kernel_attention(query, key, value, self.relative(), feature_map=self.feature_map, **options)

    def empty_state(self, rows: int, like: Tensor) -> CausalState | ExponentState:
        d, dtype = self.head_width, torch.promote_types(like.dtype, torch.float32)
        if self.by_exponents:
            return exponent_state(rows, self.heads, self.feature_width, d, like.device, dtype)
        options = (self.relative(), like.device, self.feature_map, dtype)
        return causal_init(rows, self.heads, self.feature_width, d, *options)

    def encoded_state(
        self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor
    ) -> CrossState | ExponentState:
        key = self.features(key, False, 0)  # (B, H, S, m)
        if self.by_exponents:
            return exponent_memory(key, value, key_mask)
        return cross_state(key, value, self.relative(), key_mask, self.feature_map)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: State
    ) -> tuple[Tensor, State]:
        query = self.features(query[:, :, None], True, position)  # (B*K, H, 1, m)
        key = self.features(key[:, :, None], False, position)[:, :, 0]  # (B*K, H, m)
        if isinstance(state, ExponentState):
            state = state.add(key, value)
            return state.read(query, self.joint)[:, :, 0].to(value.dtype), state
        return causal_step(query[:, :, 0], key, value, self.relative(), state, self.feature_map)

    def attend_encoded(self, query: Tensor, position: int, segments: Tensor, state: State) -> Tensor:
        documents = len(state.mean if isinstance(state, ExponentState) else state.memory)
        beams = self.features(beams_as_queries(query, documents), True, position)  # (B, H, K, m)
        if isinstance(state, ExponentState):
            out = state.read(beams, self.joint)  # (B, H, K, d)
        else:
            out = cross_step(beams, position, self.relative(), state, self.feature_map)  # (B, H, K, d)
        return queries_as_beams(out).to(query.dtype)  # features may have another dtype
