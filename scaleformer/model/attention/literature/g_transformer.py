"""Softmax attention within the segment and, in the top layers, to the whole document as well."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from scaleformer.model.attention.base import Attention
from scaleformer.model.attention.estimates import Extent, Held
from scaleformer.model.attention.segment_recall import recall_bytes
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.ops.common.matmul import Linear
from scaleformer.ops.common.precision import full_precision
from scaleformer.ops.recall.attention import segment_recall_attention
from scaleformer.ops.recall.decoding import RecallCausalState, recall_causal_init, recall_causal_step
from scaleformer.ops.recall.decoding_cross import recall_cross_state
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Natural


class Both(NamedTuple):
    """Decoding states of a layer that combines the two attentions."""

    group: Any
    whole: Any


class GTransformerAttention(Attention):
    """Group attention: out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j over the keys j of the segment of i.

    In cross-attention a token of target segment n sees source segment n; it gathers zeros where there is none.
    The top layers combine this with attention to the whole document, which has its own projections:

        out = g * group + (1 - g) * whole,   g = sigmoid(W [group; whole] + b), after the output projections of both.

    Cost O(L times the longest segment) time in the lower layers and O(L S) in the top ones, by torch's fused kernel;
    memory O(L + S). Decoding keeps the keys and values of the current target segment and of the source, and in the top
    layers every key and value written so far.
    Source: [Bao 2021], with positions added to the embeddings.
    Left out: dropout on the attention weights; starting from a sentence-level model, with its attention copied to both.

    combined  number of top layers of encoder and decoder that also attend to the whole document
    """

    absolute_positions = True
    held: ClassVar[Held] = Held(tiles=700, aside=3)
    own: Tensor
    recency: Tensor

    def __init__(
        self, site: str, width: int, heads: int, combined: Natural = 2, layer: int = 0, layers: int = 1
    ) -> None:
        super().__init__(site, width, heads)
        self.combined = combined
        self.whole = SoftmaxAttention(site, width, heads) if combined else None
        self.gate = Linear(2 * width, width) if combined else None
        if self.gate is not None:
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)
        if layer < layers - combined:
            self.whole = self.gate = None
            self.own_segment = True
        # Group attention as attention with recall that sees the own segment alone.
        self.register_buffer("own", torch.zeros(heads, 3), persistent=False)
        self.register_buffer("recency", torch.zeros(heads), persistent=False)

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        group = super().forward(x, encoded, layout)  # (B, L, D)
        return group if self.whole is None else self._combine(group, self.whole(x, encoded, layout))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        arguments = None, self.own, key.new_zeros(key.shape[:3]), self.recency
        return segment_recall_attention(query, key, value, *arguments, kept=0, causal=self.causal, layout=layout)

    def init_state(self, encoded: Tensor, key_mask: Tensor, key_segments: Tensor, rows: int) -> Any:
        arguments = encoded, key_mask, key_segments, rows
        group = super().init_state(*arguments)
        return group if self.whole is None else Both(group, self.whole.init_state(*arguments))

    def step(self, x: Tensor, position: int, segments: Tensor, state: Any) -> tuple[Tensor, Any]:
        if self.whole is None:
            return super().step(x, position, segments, state)
        group, own = super().step(x, position, segments, state.group)  # (B*K, D)
        whole, cache = self.whole.step(x, position, segments, state.whole)  # (B*K, D)
        return self._combine(group, whole), Both(own, cache)

    def empty_state(self, rows: int, like: Tensor) -> RecallCausalState:
        d, dtype = self.head_width, torch.promote_types(like.dtype, torch.float32)
        return recall_causal_init(rows, self.heads, d, d, self.own, self.recency, 0, like.device, dtype)

    def encoded_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> Any:
        arguments = self.own, key.new_zeros(key.shape[:3]), self.recency, key_segments, key_mask
        return recall_cross_state(key, value, *arguments, kept=0)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: RecallCausalState
    ) -> tuple[Tensor, RecallCausalState]:
        return recall_causal_step(query, key, value, None, key.new_zeros(key.shape[:2]), segments, state)

    def attend_encoded(self, query: Tensor, position: int, segments: Tensor, state: Any) -> Tensor:
        with full_precision(query.device):
            return state.step(query, segments).to(query.dtype)  # (B*K, H, d)

    def later_bytes(self, gained: int, documents: int, rows: int, extent: Extent, size: int) -> int:
        whole = super().later_bytes(gained, documents, rows, extent, size)
        return whole + recall_bytes(self, 0, 0, documents, rows, extent, size)

    def _combine(self, group: Tensor, whole: Tensor) -> Tensor:
        """The two outputs (..., D), weighted channel by channel: (..., D)."""
        assert self.gate is not None
        gate = self.gate(torch.cat([group, whole], dim=-1)).sigmoid()  # (..., D)
        return torch.lerp(whole, group, gate)
