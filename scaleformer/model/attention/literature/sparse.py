"""Softmax attention in the strided or the fixed pattern of the sparse transformer."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.options import one_of
from scaleformer.model.attention.softmax import KeyValueCache, SoftmaxAttention, fused, write
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import blockwise_softmax, chunks, joint_softmax, windowed_attention

PATTERNS = ("strided", "fixed")


class SparseAttention(SoftmaxAttention):
    """Softmax attention to a part of the keys that reaches every key in two layers.

    strided  the first half of the heads sees the keys with |j - i| <= stride, the other half those with j - i a
             multiple of the stride
    fixed    every head sees the block of `stride` positions that i is in, and the last `summaries` positions of the
             other blocks (if causal, of the earlier ones)
    The decoder sees no later key. Cost O(L (stride + L / stride) d) time and memory: O(L^1.5) for a stride of sqrt(L),
    quadratic for L far beyond stride^2. Decoding keeps every key and value, and reads only those it sees.
    Source: [Child 2019, section 4.2, equations 5 to 9], with positions added to the embeddings.
    Left out: the head-independent block sparsity of the authors' kernels.

    stride     in tokens
    summaries  c, tokens at the end of each block, in the fixed pattern
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(
        self, site: str, width: int, heads: int, pattern: str = "strided", stride: int = 64, summaries: int = 8
    ) -> None:
        super().__init__(site, width, heads)
        one_of(PATTERNS, pattern=pattern)
        if not 1 <= summaries <= stride:
            raise ValueError(f"model.attention.summaries is {summaries}: it must be between 1 and the stride, {stride}")
        self.pattern, self.stride, self.summaries = pattern, stride, summaries
        self.near_heads = (heads + 1) // 2

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        if self.pattern == "fixed":
            return self.fixed(query, key, value, layout.mask)
        near, far = slice(self.near_heads), slice(self.near_heads, None)
        q, k, v = (x[:, near] for x in (query, key, value))  # (B, H/2, L, d)
        close = windowed_attention(q, k, v, self.stride, causal=self.causal, key_mask=layout.mask)  # (B, H/2, L, d)
        if self.heads == 1:
            return close
        q, k, v = (x[:, far] for x in (query, key, value))  # (B, H/2, L, d)
        return torch.cat([close, self.columns(q, k, v, layout.mask)], dim=1)  # (B, H, L, d)

    def columns(self, query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor) -> Tensor:
        """Positions equal modulo the stride form one sequence: (B, H/2, L, d) -> (B, H/2, L, d)."""
        length = query.shape[2]
        real = chunks(key_mask[:, None, :, None], self.stride).transpose(2, 3)[..., 0]  # (B, 1, stride, N)
        rows = real.shape[-1]
        seen = real[:, :, :, None]  # (B, 1, stride, 1, N)
        if self.causal:
            seen = seen & torch.ones(rows, rows, dtype=torch.bool, device=query.device).tril()
        query, key, value = (
            chunks(x, self.stride).transpose(2, 3) for x in (query, key, value)
        )  # (B, H/2, stride, N, d)
        out = joint_softmax(query, [(key, value, seen)])
        return out.transpose(2, 3).flatten(2, 3)[:, :, :length]

    def fixed(self, query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor) -> Tensor:
        """(B, H, L, d) -> (B, H, L, d)"""
        stride, c, length = self.stride, self.summaries, query.shape[2]
        asked, keys, values = (chunks(x, stride) for x in (query, key, value))  # (B, H, N, stride, d)
        real = chunks(key_mask[:, None, :, None], stride)[..., 0]  # (B, 1, N, stride)
        own = real[:, :, :, None]  # (B, 1, N, 1, stride)
        if self.causal:
            own = own & torch.ones(stride, stride, dtype=torch.bool, device=query.device).tril()
        last_keys, last_values = (
            x[:, :, :, -c:].flatten(2, 3)[:, :, None] for x in (keys, values)
        )  # (B, H, 1, N c, d)
        block = torch.arange(asked.shape[2], device=query.device)  # (N,)
        other = block.repeat_interleave(c) - block[:, None]  # (N, N c)
        other = other < 0 if self.causal else other != 0
        known = (real[..., -c:].flatten(2)[:, :, None] & other)[:, :, :, None]  # (B, 1, N, 1, N c)
        out = blockwise_softmax(asked, [(keys, values, own), (last_keys, last_values, known)])  # (B, H, N, stride, d)
        return out.flatten(2, 3)[:, :, :length]

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        state, stride, near = write(state, key, value, position), self.stride, self.near_heads
        query = query[:, :, None]  # (B*K, H, 1, d)
        if self.pattern == "fixed":
            start = position - position % stride
            places = torch.arange(position + 1, device=query.device)
            places = places[(places >= start) | (places % stride >= stride - self.summaries)]  # (T,)
            return fused(query, state.key[:, :, places], state.value[:, :, places])[:, :, 0], state
        close, column = slice(max(0, position - stride), position + 1), slice(position % stride, position + 1, stride)
        groups = ((slice(near), close), (slice(near, None), column))
        out = [fused(query[:, h], state.key[:, h, seen], state.value[:, h, seen]) for h, seen in groups]
        return torch.cat(out, dim=1)[:, :, 0], state  # (B*K, H, d)
