"""Shared by softmax attentions whose scores depend on the distance between query and key."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor

from scaleformer.model.attention.estimates import Held
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.attention.state import KeyValueCache, write
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.relative import relative_softmax_attention


class Terms(NamedTuple):
    """The distance terms of the scores, as arguments of `relative_softmax_attention`."""

    rel: Tensor | None = None
    bias: Tensor | None = None


class RelativeSoftmaxAttention(SoftmaxAttention):
    """Softmax attention with a term for the distance j - i in its scores, which the mechanism defines."""

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    absolute_positions: ClassVar[bool] = False
    held: ClassVar[Held] = Held(scores=5, aside=1)

    def __init__(self, site: str, width: int, heads: int) -> None:
        super().__init__(site, width, heads)

    @abstractmethod
    def terms(self, reach: int, like: Tensor) -> Terms:
        """The terms for distances up to `reach`, on the device of `like`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        mask = None if self.causal else layout.mask  # pads are at the end: no real query sees one
        rel, bias = self.terms(query.shape[2], query)
        return relative_softmax_attention(query, key, value, rel, bias, causal=self.causal, key_mask=mask)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        state = write(state, key, value, position)
        keys, values = (buffer[:, :, : position + 1] for buffer in (state.key, state.value))  # (B*K, H, T, d)
        rel, bias = self.terms(position + 1, query)
        out = relative_softmax_attention(query[:, :, None], keys, values, rel, bias, first=position)
        return out[:, :, 0], state  # (B*K, H, d)
