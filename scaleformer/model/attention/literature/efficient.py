"""Efficient attention: softmax over the features of a query, and over the positions of the keys."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from scaleformer.model.attention.kernelized import KernelizedAttention
from scaleformer.ops import CausalState, CrossState, get_feature_map, relative_kernel_attention
from scaleformer.ops.segments.layout import SegmentLayout

TINY = torch.finfo(torch.float32).tiny


class EfficientAttention(KernelizedAttention):
    """out_i = sum_c softmax_c(Q_i)_c G_c,  G_c = sum_j softmax_j(K_jc) V_j: d global summaries, each query mixes them.

    Cost O((L + S) d^2) time, O(L + S) memory; decoding keeps one d x (d+1) matrix a head.
    Source: [Shen 2020, section 3.2, softmax normalisation], with sinusoidal positions added to the embeddings.
    The causal form is ours: position i normalises over the keys up to it, by running sums,

        out_i = sum_c softmax_c(Q_i)_c  sum_{j<=i} exp(K_jc) V_j / sum_{j<=i} exp(K_jc).
    """

    def __init__(self, site: str, width: int, heads: int, algorithm: str = "auto") -> None:
        super().__init__(site, width, heads, algorithm=algorithm)
        self.feature_map = "mapped"

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        key = key.to(torch.promote_types(key.dtype, torch.float32))
        if self.causal:  # the sums over the features are one: nothing is left for the core to normalise
            answers, mask = key.exp(), None
            asked = query.to(key.dtype).softmax(-1) / answers.cumsum(2).clamp(min=TINY)  # (B, H, L, d)
        else:
            asked, answers, mask = query.to(key.dtype).softmax(-1), over_positions(key, layout.mask), layout.mask
        return relative_kernel_attention(
            asked,
            answers,
            value,
            causal=self.causal,
            key_mask=mask,
            feature_map=self.feature_map,
            algorithm=self.algorithm,
        )  # (B, H, L, d)

    def memory_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> CrossState:
        return super().memory_state(over_positions(key, key_mask), value, key_mask, key_segments)

    def features(self, x: Tensor, asks: bool, first: int) -> Tensor:
        return x.softmax(-1) if asks else x  # (..., L, d)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: CausalState
    ) -> tuple[Tensor, CausalState]:
        state.add(key, value, get_feature_map("exp"))
        summaries = state.memory[..., :-1] / state.memory[..., -1:].clamp(min=TINY)  # (B*K, H, d, d)
        out = cast(Tensor, query.to(summaries.dtype).softmax(-1)[:, :, None] @ summaries)[:, :, 0]  # (B*K, H, d)
        return out.to(value.dtype), replace(state, position=position + 1)


def over_positions(key: Tensor, key_mask: Tensor) -> Tensor:
    """softmax_j(K_jc) over the real positions: key (B, H, S, d), key_mask (B, S) -> (B, H, S, d)."""
    return key.masked_fill(~key_mask[:, None, :, None], float("-inf")).softmax(2)
