"""Softmax attention gated by the distance in segments: the quadratic baseline of `segment_recall`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.base import Attention
from scaleformer.model.attention.estimates import Held
from scaleformer.model.attention.options import log_gate, relative_embedding
from scaleformer.model.attention.state import FIRST_ROOM, KeyValueCache, grow, room, write
from scaleformer.ops.common.relative_positions import relative_scores
from scaleformer.ops.segments.gate import pair_gates
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Positive, Range


class SoftmaxGatedAttention(Attention):
    """out_i = sum_j s_ij V_j / sum_j s_ij,  s_ij = w_i(x) exp(Q_i . (K_j + P_clip(j-i, -R, R)) / sqrt(d)),

        w_i(x) = g(x) if |x| < G;  g(-G or G) min(1, far_tokens / n_i) if |x| >= G

    x = sigma_j - tau_i is the distance in segments, g learned for each head, and n_i the number of keys at |x| >= G
    that query i may see: all farther keys together weigh at most `far_tokens` tokens, however long the document.
    Cross-attention has no P: there the segments alone align the two sides. `segment_recall` has the same gate, and
    keeps few of the far keys instead.

    Cost O(L S) time and memory; decoding keeps every key and value written so far.
    Source: [Vaswani 2017, equation 1] with the keys' part of [Shaw 2018, equation 4]; the gate is our own. The closest
    published method is the sentential gate [Wu 2022] of random feature attention [Peng 2021]: where a
    segment begins, a gate read from its first token lets the past fade, in the decoder only. Here the weight depends on
    the number of segments between query and key, on both sides, in the encoder and in cross-attention too.

    horizon     R, the distance in tokens beyond which all have one embedding
    reach       G, the distance in segments from which on all are equally far
    slope       the gate starts as exp(-slope_h * distance), slope_h = slope * (0.5, 1, 2, 4, repeated) over the heads
    far_tokens  the weight of all far keys together, at most, in tokens
    """

    held: ClassVar[Held] = Held(scores=7, aside=1)

    def __init__(
        self, site: str, width: int, heads: int, horizon: Positive = 16, reach: Positive = 4, slope: float = 1.0,
        far_tokens: Annotated[float, Range(ge=1)] = 20,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads)
        self.far_tokens = far_tokens
        if site != "cross":
            self.relative_embedding = relative_embedding(heads, horizon, self.head_width)
        self.log_gate = log_gate(heads, reach, slope)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        relative = None
        if self.site != "cross":
            relative = relative_scores(query @ self.relative_embedding.transpose(-1, -2), key.shape[2])  # (B, H, L, S)
        return self._gather(query, key, value, relative, layout.mask, layout.query_segments, layout.key_segments)

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        key, value = (room(like, FIRST_ROOM, rows, self.heads, self.head_width) for _ in range(2))  # (B*K, H, T, d)
        segments = torch.zeros(rows, FIRST_ROOM, dtype=torch.long, device=like.device)  # (B*K, T)
        return KeyValueCache(key, value, 0, segments=segments)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        assert state.segments is not None
        numbers = grow(state.segments, position + 1, dim=1)  # (B*K, T)
        numbers[:, position] = segments
        state = replace(write(state, key, value, position), segments=numbers)
        seen = slice(0, position + 1)
        by_distance = query[:, :, None] @ self.relative_embedding.transpose(-1, -2)  # (B*K, H, 1, 2R+1)
        relative = relative_scores(by_distance, position + 1, first=position)  # (B*K, H, 1, T)
        cache = (state.key[:, :, seen], state.value[:, :, seen])
        out = self._gather(query[:, :, None], *cache, relative, None, segments[:, None], numbers[:, seen], False)
        return out[:, :, 0], state

    def _gather(
        self, query: Tensor, key: Tensor, value: Tensor, relative: Tensor | None, key_mask: Tensor | None,
        query_segments: Tensor, key_segments: Tensor, causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """query (B, H, L, d), key and value (B, H, S, d), relative (B, H, L, S), the rest (B, L | S) -> (B, H, L, d)"""
        causal = self.causal if causal is None else causal
        dtype = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            scores = query.to(dtype) @ key.to(dtype).transpose(-1, -2)  # (B, H, L, S)
            if relative is not None:
                scores = scores + relative.to(dtype)  # (B, H, L, S)
            where = (query_segments, key_segments, causal, key_mask, self.far_tokens)
            log_gates, scale = pair_gates(self.log_gate.to(dtype), *where)  # logarithms, since the gates may underflow
            scores = scores * self.head_width**-0.5 + log_gates + scale.log()  # (B, H, L, S)
            seen = torch.ones_like(scores[:1, :1], dtype=torch.bool) if key_mask is None else key_mask[:, None, None, :]
            if causal:
                seen = seen & torch.ones_like(scores[0, 0], dtype=torch.bool).tril()  # (B, 1, L, S)
            # finite, so that a query without keys gets zeros, not NaN
            attention = scores.masked_fill(~seen, -1e30).softmax(-1) * seen.any(-1, keepdim=True)  # (B, H, L, S)
            return (attention @ value.to(dtype)).to(value.dtype)  # (B, H, L, d)
