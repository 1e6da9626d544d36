"""Softmax attention with clipped relative positions."""

from __future__ import annotations

from torch import Tensor

from scaleformer.model.attention.options import relative_embedding
from scaleformer.model.attention.relative_softmax import RelativeSoftmaxAttention, Terms
from scaleformer.system.schema import Positive


class ShawAttention(RelativeSoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . (K_j + P_clip(j-i, -R, R)) / sqrt(d)) V_j, with embeddings P for each head.

    Cost O(L^2 d) time; memory O(L^2) for short texts and O(L) for long ones, never a tensor (L, L, d); decoding keeps
    every key and value. Source: [Shaw 2018, equation 4], by the skewing of [Huang 2019, section 3.4.1].
    Left out: the embeddings added to the values (equation 3), which gain nothing over those of the keys (table 3).

    horizon  R, the distance in tokens beyond which all keys count as equally far
    """

    def __init__(self, site: str, width: int, heads: int, horizon: Positive = 16) -> None:
        super().__init__(site, width, heads)
        self.relative_embedding = relative_embedding(heads, horizon, self.head_width)

    def terms(self, reach: int, like: Tensor) -> Terms:
        return Terms(rel=self.relative_embedding)
