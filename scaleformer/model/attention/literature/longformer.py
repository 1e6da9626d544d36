"""Softmax attention to a sliding window and a few global tokens."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.options import at_least
from scaleformer.model.attention.softmax import KeyValueCache, SoftmaxAttention, fused
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import windowed_attention


class LongformerAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j over |j - i| <= window and the first `global_tokens` positions.

    In the encoder the global tokens see all tokens, as in LED; the decoder's window is causal. Cost O(L window d) time,
    O(L window) memory; decoding keeps window + 1 + global_tokens keys and values, however long the text.
    Source: [Beltagy 2020, section 3.1], with positions added to the embeddings.
    Left out: separate projections for the global tokens, dilated windows, and LED's full attention in the decoder.

    window         tokens on either side
    global_tokens  number of initial tokens that all tokens see
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(self, site: str, width: int, heads: int, window: int = 64, global_tokens: int = 1) -> None:
        super().__init__(site, width, heads)
        at_least(1, window=window)
        at_least(0, global_tokens=global_tokens)
        self.window = window
        self.global_tokens = global_tokens

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        mask = None if self.causal else layout.mask  # pads stand at the end: no real query sees one
        window, few = self.window, self.global_tokens
        return windowed_attention(query, key, value, window, few, causal=self.causal, key_mask=mask)  # (B, H, L, d)

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        size = self.global_tokens + self.window + 1
        empty = like.new_zeros(
            rows, self.heads, size, self.head_width
        )  # (B*K, H, T, d), a ring after the global tokens
        return KeyValueCache(empty, torch.zeros_like(empty), empty.shape[2])

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        few = self.global_tokens
        slot = position if position < few else few + (position - few) % (self.window + 1)
        state.key[:, :, slot], state.value[:, :, slot] = key, value
        seen = min(position + 1, state.key.shape[2])  # the ring's order does not matter
        out = fused(query[:, :, None], state.key[:, :, :seen], state.value[:, :, :seen])  # (B*K, H, 1, d)
        return out[:, :, 0], KeyValueCache(state.key, state.value, state.length)
