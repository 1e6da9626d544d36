"""Softmax attention, the quadratic baseline."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from scaleformer.model.attention.base import Attention
from scaleformer.model.attention.estimates import Held
from scaleformer.model.attention.positions import LearnedPositions
from scaleformer.model.attention.state import FIRST_ROOM, KeyValueCache, room, write
from scaleformer.ops.common.precision import full_precision
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Positive

#: below this many queries times keys torch's fused kernel is up to seven times slower in bf16 than in fp32 on a CPU
SHORT = 512 * 512

#: queries up to which two products are faster than torch's fused kernel, in decoding on a CPU
FEW = 8


class SoftmaxAttention(Attention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j, by torch's fused kernel.

    Cost O(L S d) time, O(L + S) memory in training; decoding keeps every key and value written so far.
    Source: [Vaswani 2017, equation 1], with positions added to the embeddings.
    Left out: dropout on the attention weights, which the linear mechanisms cannot offer either.

    positions      "sinusoidal"; "learned" [Vaswani 2017, table 3, row E], which limits the length; or "none", if
                   another mechanism provides positions
    max_positions  number of learned positions; longer texts are refused
    """

    absolute_positions: ClassVar[bool] = True
    held: ClassVar[Held] = Held(aside=1)

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal",
        max_positions: Positive = 1024,
    ) -> None:
        super().__init__(site, width, heads)
        self.positions = positions
        self.max_positions = max_positions

    def make_positions(self) -> nn.Module | None:
        if self.positions == "learned":
            return LearnedPositions(self.max_positions, self.heads * self.head_width)
        return None if self.positions == "none" else super().make_positions()

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        if self.causal:  # pads are at the end of a row: no real query sees one
            return fused(query, key, value, causal=True)  # (B, H, L, d)
        return fused(query, key, value, layout.mask[:, None, None, :])  # (B, H, L, d)

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        key, value = (room(like, FIRST_ROOM, rows, self.heads, self.head_width) for _ in range(2))  # (B*K, H, T, d)
        return KeyValueCache(key, value, 0)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        state = write(state, key, value, position)
        keys, values = (buffer[:, :, : position + 1] for buffer in (state.key, state.value))  # (B*K, H, T, d)
        return fused(query[:, :, None], keys, values)[:, :, 0], state  # (B*K, H, d)


def fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """query (B, H, L, d), key and value (B, H, S, d), mask (B, 1, 1, S) bool, True = seen -> (B, H, L, d)"""
    if query.device.type != "cpu" or query.shape[2] * key.shape[2] >= SHORT:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
    dtype = query.dtype
    with full_precision(query.device):
        query, key, value = (x.to(torch.promote_types(dtype, torch.float32)) for x in (query, key, value))
        if query.shape[2] > FEW or causal or query.requires_grad:
            return scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal).to(dtype)
        scores = query * query.shape[3] ** -0.5 @ key.transpose(-1, -2)  # (B, H, L, S)
        if mask is not None:
            scores = scores.masked_fill_(~mask, float("-inf"))
        return (scores.softmax(-1) @ value).to(dtype)
