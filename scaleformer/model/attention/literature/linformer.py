"""Softmax attention to projections of the keys along the length."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from scaleformer.model.attention.base import beams_as_queries, queries_as_beams
from scaleformer.model.attention.softmax import SoftmaxAttention, fused
from scaleformer.model.attention.state import KeyValueCache
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Positive


class LinformerAttention(SoftmaxAttention):
    """out_i = sum_r softmax_r(Q_i . (E K)_r / sqrt(d)) (F V)_r, with learned E and F (rank, max_length).

    Any number of keys and values become `rank` of each. Cost O((L + S) rank d) time, O(L + S) memory; decoding keeps
    `rank` keys and values.
    Source: [Wang 2020, equation 7], E and F shared by the heads of a layer, with positions added to the embeddings.
    Causal attention is impossible, since every projected key mixes all keys. The projections bound the length: longer
    texts are refused.

    rank        number of projected keys
    max_length  the most keys
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "cross")

    def __init__(self, site: str, width: int, heads: int, rank: Positive = 64, max_length: Positive = 4096) -> None:
        super().__init__(site, width, heads)
        self.key_projection = nn.Parameter(torch.randn(rank, max_length) * rank**-0.5)
        self.value_projection = nn.Parameter(torch.randn(rank, max_length) * rank**-0.5)
        self.most_keys = max_length

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        return fused(query, *self.project(key, value, layout.mask))  # (B, H, L, d)

    def encoded_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> KeyValueCache:
        keys, values = self.project(key, value, key_mask)
        return KeyValueCache(keys, values, keys.shape[2])

    def attend_encoded(self, query: Tensor, position: int, segments: Tensor, state: KeyValueCache) -> Tensor:
        beams = beams_as_queries(query, len(state.key))  # (B, H, K, d)
        return queries_as_beams(fused(beams, state.key, state.value))

    def project(self, key: Tensor, value: Tensor, key_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Key and value (B, H, S, d) -> (B, H, rank, d). Raises ValueError for more keys than max_length."""
        length = key.shape[2]
        if length > self.most_keys:
            raise ValueError(
                f"attention 'linformer' takes at most {self.most_keys} tokens, not {length}: shorten the text, or "
                "train with a larger model.attention.max_length"
            )
        pads = ~key_mask[:, None, :, None]  # (B, 1, S, 1)
        projections = (self.key_projection, self.value_projection)
        keys, values = (
            p[:, :length].to(x.dtype) @ x.masked_fill(pads, 0.0) for p, x in zip(projections, (key, value), strict=True)
        )
        return keys, values
