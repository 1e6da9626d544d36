"""Softmax attention in the strided or the fixed pattern of the sparse transformer."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from scaleformer.model.attention.softmax import SoftmaxAttention, fused
from scaleformer.model.attention.state import KeyValueCache, write
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import (
    band,
    blockwise_softmax,
    chunks,
    hide,
    joint_softmax,
    joint_weights,
    strips,
    windowed_attention,
)
from scaleformer.system.schema import Positive


class SparseAttention(SoftmaxAttention):
    """Softmax attention to a part of the keys that reaches every key in two steps. A pattern has two factors:

    strided  the keys with |j - i| <= stride; and those with j - i a multiple of the stride
    fixed    the block of `stride` positions that i is in; and the last `summaries` positions of all blocks
    The decoder sees no later key; a query that sees none gathers zeros. Each factor is that of one half of the heads or
    of every other layer, or each head sees both. Cost O(L (stride + L / stride) d) time and memory: O(L^1.5) for a
    stride of sqrt(L), quadratic for L far beyond stride^2. Decoding keeps every key and value, and reads only those it
    sees.
    Source: [Child 2019], the factorized patterns and attention heads, with positions added to the embeddings.
    Left out: the head-independent block sparsity of the authors' kernels.

    stride     in tokens
    summaries  c, tokens at the end of each block, in the fixed pattern
    factors    "heads": the first half of the heads has the first factor, the others have the second; "layers": even
               layers, from the bottom, have the first, odd ones the second; "merged": each head sees both; "auto":
               heads for the strided pattern, merged for the fixed one
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(
        self, site: str, width: int, heads: int, pattern: Literal["strided", "fixed"] = "strided",
        stride: Positive = 64, summaries: Positive = 8, factors: Literal["auto", "heads", "layers", "merged"] = "auto",
        layer: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads)
        if summaries > stride:
            raise ValueError(f"model.attention.summaries is {summaries}: it must be at most the stride, {stride}")
        self.pattern, self.stride, self.summaries = pattern, stride, summaries
        if factors == "auto":
            factors = "heads" if pattern == "strided" else "merged"
        half, every = (heads + 1) // 2, slice(None)
        if factors == "heads" and heads > 1:
            self.groups = [(slice(half), "first"), (slice(half, None), "second")]
        elif factors == "merged":
            self.groups = [(every, "both")]
        else:
            self.groups = [(every, "second" if factors == "layers" and layer % 2 else "first")]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        factor_of = self.fixed if self.pattern == "fixed" else self.strided
        parts = [
            factor_of(query[:, heads], key[:, heads], value[:, heads], layout.mask, factor)
            for heads, factor in self.groups
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)  # (B, H, L, d)

    def strided(self, query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor, factor: str) -> Tensor:
        """Heads with a factor, or with both: (B, H', L, d) -> (B, H', L, d)."""
        stride, after, length = self.stride, 0 if self.causal else self.stride, query.shape[2]
        if factor == "first":
            return windowed_attention(query, key, value, stride, causal=self.causal, key_mask=key_mask)
        # positions equal modulo the stride form one sequence, a column
        q, keys, values = (chunks(x, stride).transpose(2, 3) for x in (query, key, value))  # (B, H', stride, N, d)
        real = chunks(key_mask[:, None, :, None], stride).transpose(2, 3)[..., 0]  # (B, 1, stride, N)
        block = torch.arange(real.shape[-1], device=query.device)
        away = block - block[:, None]  # (N, N)
        column = real[:, :, :, None].expand(-1, -1, -1, len(block), -1)  # (B, 1, stride, N, N)
        column = column & (away <= 0) if self.causal else column
        if factor == "second":
            return joint_softmax(q, [(keys, values, column)]).transpose(2, 3).flatten(2, 3)[:, :, :length]
        near_keys, near_values = (strips(x, stride, stride, after) for x in (key, value))  # (B, H', N, W, d)
        within = strips(key_mask[:, None, :, None], stride, stride, after)[..., 0][:, :, :, None]  # (B, 1, N, 1, W)
        q = q * self.head_width**-0.5
        near = q.transpose(2, 3) @ near_keys.transpose(-1, -2)  # (B, H', N, stride, W)
        far = (q @ keys.transpose(-1, -2)).transpose(2, 3)  # (B, H', N, stride, N)
        outside = (column & (away.abs() > 1)).transpose(2, 3)  # (B, 1, N, stride, N)
        weights = joint_weights([hide(near, within & band(stride, self.causal, query.device)), hide(far, outside)])
        near, far = (x.to(value.dtype) for x in weights)
        out = near @ near_values + (far.transpose(2, 3) @ values).transpose(2, 3)  # (B, H', N, stride, d)
        return out.flatten(2, 3)[:, :, :length]

    def fixed(self, query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor, factor: str) -> Tensor:
        """Heads with a factor, or with both: (B, H', L, d) -> (B, H', L, d)."""
        stride, c, length = self.stride, self.summaries, query.shape[2]
        q, keys, values = (chunks(x, stride) for x in (query, key, value))  # (B, H', N, stride, d)
        real = chunks(key_mask[:, None, :, None], stride)[..., 0]  # (B, 1, N, stride)
        groups = []
        if factor != "second":
            own = real[:, :, :, None]  # (B, 1, N, 1, stride)
            if self.causal:
                own = own & torch.ones(stride, stride, dtype=torch.bool, device=query.device).tril()
            groups.append((keys, values, own))
        if factor != "first":
            last_keys, last_values = (
                x[:, :, :, -c:].flatten(2, 3)[:, :, None] for x in (keys, values)
            )  # (B, H', 1, N c, d)
            block = torch.arange(real.shape[2], device=query.device)
            other = (block.repeat_interleave(c) - block[:, None])[:, None]  # (N, 1, N c), in blocks
            other = other < 0 if self.causal else other != 0
            if factor == "second":  # those of the own block as well
                place = torch.arange(real.shape[2] * stride, device=query.device).view(-1, stride)  # (N, stride)
                last = place[:, -c:].flatten()  # (N c,)
                other = last <= place[..., None] if self.causal else last >= 0  # (N, stride, N c) or (N c,)
            groups.append((last_keys, last_values, real[..., -c:].flatten(2)[:, :, None, None] & other))
        out = blockwise_softmax(q, groups)  # (B, H', N, stride, d)
        return out.flatten(2, 3)[:, :, :length]

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        state, out = write(state, key, value, position), []
        for heads, factor in self.groups:
            q, seen = query[:, heads, None], self._seen(position, factor)  # (B*K, H', 1, d)
            keys, values = (x[:, heads, seen] for x in (state.key, state.value))  # (B*K, H', T, d)
            out.append(fused(q, keys, values) if keys.shape[2] else torch.zeros_like(q))
        return torch.cat(out, dim=1)[:, :, 0], state  # (B*K, H, d)

    def _seen(self, position: int, factor: str) -> slice | list[int]:
        """The positions that a position sees."""
        stride, place = self.stride, position % self.stride
        start = max(0, position - (stride if self.pattern == "strided" else place))
        if factor == "first":
            return slice(start, position + 1)
        if self.pattern == "strided" and factor == "second":
            return slice(place, position + 1, stride)
        if self.pattern == "strided":
            return [*range(place, start, stride), *range(start, position + 1)]
        ends = range(stride - self.summaries, position + 1, stride)
        last = [p for end in ends for p in range(end, min(end + self.summaries, position + 1))]
        return last if factor == "second" else [*(p for p in last if p < start), *range(start, position + 1)]
