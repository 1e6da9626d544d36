"""Softmax attention with a learned span for each head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scaleformer.model.attention.options import at_least, relative_embedding
from scaleformer.model.attention.relative_softmax import RelativeSoftmaxAttention, Terms


class AdaptiveSpanAttention(RelativeSoftmaxAttention):
    """out_i = sum_j a_ij V_j / sum_j a_ij,  a_ij = m(|j - i|) exp(Q_i . (K_j + P_clip(j-i, -R, R)) / sqrt(d)).

    m(x) = min(1, max(0, (ramp + z_h - x) / ramp)) fades out beyond the span z_h, which each head learns. Training adds
    `penalty` nats for each token of a layer's mean span (`penalise`); the reported loss does not include it.
    Cost O(L^2 d) time; memory O(L^2) for short texts and O(L) for long ones; decoding keeps every key and value.
    Source: [Sukhbaatar 2019, equations 2 to 5], on both sides in the encoder.
    Left out: skipping the work beyond the span (the cost stays quadratic); spans that depend on the input.

    max_span  tokens, the greatest z
    ramp      tokens over which attention fades out
    initial   initial z, as a share of max_span
    penalty   added to the loss for each token of the heads' mean span, in each layer
    horizon   R, the distance beyond which all keys share one position embedding
    """

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        max_span: int = 1024,
        ramp: int = 32,
        initial: float = 0.1,
        penalty: float = 2e-6,
        horizon: int = 16,
    ) -> None:
        super().__init__(site, width, heads)
        at_least(1, max_span=max_span, ramp=ramp, horizon=horizon)
        if not 0 <= initial <= 1 or not 0 <= penalty < math.inf:
            raise ValueError(
                f"model.attention.initial is {initial} and penalty is {penalty}: initial must be in [0, 1], penalty at "
                "least 0 and finite"
            )
        self.max_span, self.ramp, self.penalty = max_span, ramp, penalty
        self.relative_embedding = relative_embedding(heads, horizon, self.head_width)
        self.span = nn.Parameter(torch.full((heads,), float(initial)))  # z / max_span

    def terms(self, reach: int, like: Tensor) -> Terms:
        if self.training:
            with torch.no_grad():
                self.span.clamp_(0, 1)  # outside this range no gradient would bring it back
        span = self._spans()  # (H,)
        distance = torch.arange(-reach, reach + 1, device=like.device).abs()  # (2 reach + 1,)
        seen = ((self.ramp + span[:, None] - distance) / self.ramp).clamp(0, 1)  # (H, 2 reach + 1)
        tiny = torch.finfo(seen.dtype).tiny
        bias = torch.where(seen > 0, seen.clamp(min=tiny).log(), float("-inf"))  # (H, 2 reach + 1)
        return Terms(rel=self.relative_embedding, bias=bias)

    def penalise(self) -> Tensor:
        return self.penalty * self._spans().mean()

    def _spans(self) -> Tensor:
        return self.span.clamp(0, 1) * self.max_span  # (H,)
