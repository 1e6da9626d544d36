"""Softmax attention with a learned span for each head."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from scaleformer.model.attention.estimates import Extent, Held
from scaleformer.model.attention.literature.auxiliary_loss import AuxiliaryLoss
from scaleformer.model.attention.options import relative_embedding
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.attention.state import FIRST_ROOM, write
from scaleformer.ops.common.matmul import linear
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.relative import near_softmax_attention, relative_softmax_attention
from scaleformer.system.schema import Positive, Range, Share

#: the shortest reach that a head is computed with, in tokens
LEAST_REACH = 16


class AdaptiveSpanAttention(AuxiliaryLoss, SoftmaxAttention):
    """out_i = sum_j a_ij V_j / sum_j a_ij,  a_ij = m(|j - i|) exp(Q_i . (K_j + P_clip(j-i, -R, R)) / sqrt(d)).

    m(x) = min(1, max(0, (ramp + z - x) / ramp)) fades out beyond the span z: one z_h for each head, which it learns, or
    with `dynamic` one for each head and token, z_i = max_span * sigmoid(v_h . x_i + b_h) of the layer's input x.
    Training adds `penalty` nats for each token of a layer's mean span (`auxiliary_loss`); the reported loss does not
    include it. Keys far beyond ramp + z are not read: queries are taken in chunks, whose windows are a power of two for
    each head. Cost O(L (ramp + z) d) time and O(L (ramp + z)) memory, z the widest span of a head in the batch.
    Decoding reads at most 2 (ramp + z) keys and keeps at most 4 (ramp + z), or 64; with `dynamic` it keeps those of
    max_span.
    Source: [Sukhbaatar 2019, equations 2 to 5 and the dynamic span], on both sides in the encoder.

    max_span  tokens, the greatest z
    ramp      tokens over which attention fades out
    initial   initial z, as a share of max_span
    penalty   added to the loss for each token of the heads' mean span, in each layer
    horizon   R, the distance beyond which all keys share one position embedding
    dynamic   whether the span depends on the token
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    takes_biases: ClassVar[bool] = False
    absolute_positions: ClassVar[bool] = False
    held: ClassVar[Held] = Held(scores=5, aside=1)

    def __init__(
        self, site: str, width: int, heads: int, max_span: Positive = 1024, ramp: Positive = 32, initial: Share = 0.1,
        penalty: Annotated[float, Range(ge=0)] = 2e-6, horizon: Positive = 16, dynamic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads)
        self.max_span, self.ramp, self.penalty, self.dynamic = max_span, ramp, penalty, dynamic
        self.relative_embedding = relative_embedding(heads, horizon, self.head_width)
        self._mean: Tensor | None = None  # of the spans of the last batch
        if dynamic:
            share = min(max(initial, 0.001), 0.999)
            self.span_weight = nn.Parameter(torch.zeros(heads, width))  # v
            self.span_bias = nn.Parameter(torch.full((heads,), math.log(share / (1 - share))))  # b
        else:
            self.span = nn.Parameter(torch.full((heads,), float(initial)))  # z / max_span

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        if not self.dynamic:
            return super().forward(x, encoded, layout)
        query, key, value = self._project(x, self.query, self.key, self.value)  # (B, H, L, d) each
        raw = linear(x, self.span_weight, self.span_bias).transpose(1, 2)  # (B, H, L)
        if self.training:
            real = layout.mask[:, None]  # (B, 1, L)
            total = self._dynamic_spans(raw).masked_fill(~real, 0.0).mean(1).sum()
            self._mean = total / real.sum().clamp(min=1)
        query = torch.cat([query, raw[..., None].to(query.dtype)], dim=-1)  # (B, H, L, d+1)
        return self.output(self._merge(self.attend(query, key, value, layout)))  # (B, L, D)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        """With `dynamic` the last component of a query is v . x + b: query (B, H, L, d+1)."""
        if self.training and not self.dynamic:
            with torch.no_grad():
                self.span.clamp_(0, 1)  # outside this range no gradient would bring it back
        mask = layout.mask
        spans = self._dynamic_spans(query[..., -1]).masked_fill(~mask[:, None], 0.0) if self.dynamic else self._spans()
        query = query[..., : self.head_width]  # (B, H, L, d)

        def within(reach: int, heads: list[int]) -> Tensor:
            q, k, v = (x[:, heads] if len(heads) < self.heads else x for x in (query, key, value))
            bias, rel = self._bias(_of(spans, heads), reach), self.relative_embedding[heads]
            return near_softmax_attention(q, k, v, rel, bias, causal=self.causal, key_mask=mask)

        return self._by_reach(spans, within)

    def _by_reach(self, spans: Tensor, attend: Callable[[int, list[int]], Tensor]) -> Tensor:
        """What `attend` gathers (B, H', L, d) for reaches and the heads of each, for all heads: (B, H, L, d).

        A reach is the lowest power of two within which the heads see all their keys; spans (H,) or (B, H, L)."""
        groups: dict[int, list[int]] = {}
        for head, span in enumerate((spans if spans.dim() == 1 else spans.amax((0, 2))).tolist()):
            groups.setdefault(_power(math.ceil(span) + self.ramp), []).append(head)
        parts = [attend(reach, heads) for reach, heads in groups.items()]
        if len(parts) == 1:
            return parts[0]
        order = [head for heads in groups.values() for head in heads]
        return torch.cat(parts, dim=1)[:, [order.index(head) for head in range(self.heads)]]

    def _bias(self, z: Tensor, reach: int) -> Tensor:
        """The logarithm of m at the distances -reach to reach, for spans z (...): (..., 2 reach + 1)."""
        distance = torch.arange(-reach, reach + 1, device=z.device).abs()  # (2 reach + 1,)
        seen = ((self.ramp + z[..., None] - distance) / self.ramp).clamp(0, 1)
        tiny = torch.finfo(seen.dtype).tiny
        return torch.where(seen > 0, seen.clamp(min=tiny).log(), float("-inf"))

    def step_weight(self) -> Tensor:
        weight = super().step_weight()
        return torch.cat([weight, self.span_weight]) if self.dynamic else weight  # (3D + H, D)

    def step_projected(self, projected: Tensor, position: int, segments: Tensor, state: Any) -> tuple[Tensor, Any]:
        D = self.heads * self.head_width
        query, key, value = projected[:, : 3 * D].view(-1, 3, self.heads, self.head_width).unbind(1)  # (B*K, H, d)
        raw = projected[:, 3 * D :, None]  # (B*K, H, 1)
        spans = self._dynamic_spans(raw + self.span_bias[:, None]) if self.dynamic else self._spans()  # or (H,)
        half = self.room // 2
        slot = position if position < 2 * half else half + position % half
        if position >= 2 * half and slot == half:  # the room is full: its first half is beyond every reach
            for buffer in (state.key, state.value):
                buffer[:, :, :half] = buffer[:, :, half : 2 * half].clone()
        state = write(state, key, value, slot)

        def within(reach: int, heads: list[int]) -> Tensor:
            first = max(0, slot + 1 - reach)
            keys, values = (x[:, heads, first : slot + 1] for x in (state.key, state.value))  # (B*K, H', T, d)
            bias, rel = self._bias(_of(spans, heads), reach), self.relative_embedding[heads]
            return relative_softmax_attention(query[:, heads, None], keys, values, rel, bias, first=slot - first)

        return self._by_reach(spans, within)[:, :, 0], state  # (B*K, H, d)

    @property
    def room(self) -> int:
        """Positions that the state has room for: when they are full, the older half of them is forgotten."""
        widest = self.max_span if self.dynamic else float(self._spans().detach().max())
        return 2 * _power(math.ceil(widest) + self.ramp, FIRST_ROOM // 2)

    def later_bytes(self, gained: int, documents: int, rows: int, extent: Extent, size: int) -> int:
        target = min(extent.target, self.room)
        return super().later_bytes(gained, documents, rows, extent._replace(target=target), size)

    def auxiliary_loss(self) -> Tensor | None:
        """With `dynamic`, of the last training batch; once, so that no graph outlives it."""
        mean, self._mean = (self._mean, None) if self.dynamic else (self._spans().mean(), None)
        return None if mean is None else self.penalty * mean

    def _dynamic_spans(self, raw: Tensor) -> Tensor:
        return self.max_span * raw.to(torch.promote_types(raw.dtype, torch.float32)).sigmoid()

    def _spans(self) -> Tensor:
        return self.span.clamp(0, 1) * self.max_span  # (H,)


def _of(spans: Tensor, heads: list[int]) -> Tensor:
    """Those of some heads; spans (H,) or (B, H, L)."""
    return spans[heads] if spans.dim() == 1 else spans[:, heads]


def _power(number: int, least: int = LEAST_REACH) -> int:
    """The lowest power of two from `least` on that is at least `number`."""
    return max(least, 1 << max(0, number - 1).bit_length())
