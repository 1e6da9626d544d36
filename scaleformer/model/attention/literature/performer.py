"""The softmax kernel, estimated by random features."""

from __future__ import annotations

from torch import Tensor

from scaleformer.model.attention.kernelized import KernelizedAttention
from scaleformer.model.attention.literature.redrawn import Redrawn
from scaleformer.model.attention.options import Algorithm
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.random_features import orthogonal_projection, random_exponents
from scaleformer.system.schema import Natural, Positive


class PerformerAttention(Redrawn, KernelizedAttention):
    """out_i = sum_j phi(Q_i).phi(K_j) V_j / sum_j phi(Q_i).phi(K_j),  phi_r(x) = exp(w_r.x' - |x'|^2 / 2).

    x' = x / d^(1/4); the w_r are m orthogonal directions of normally distributed lengths, so that phi(q).phi(k) / m is
    exp(q.k / sqrt(d)) on average: an unbiased estimate of the softmax kernel. Cost O((L + S) d m) time, O(L + S)
    memory; decoding keeps one m x (d+1) matrix a head, exactly.
    Source: [Choromanski 2021], FAVOR+, with sinusoidal positions added to the embeddings.
    Left out: the generalised (ReLU) features; `kernelized` has a deterministic form of them.

    features      m
    redraw_every  training passes between new draws of the w_r; 0 keeps the first draw
    """

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        features: Positive = 64,
        redraw_every: Natural = 1000,
        algorithm: Algorithm = "auto",
    ) -> None:
        super().__init__(site, width, heads, feature_map="exp", algorithm=algorithm)
        self.feature_width = features
        self.begin_draws(redraw_every)

    def draw(self) -> None:
        """The w_r (m, d)."""
        self.projection = orthogonal_projection(self.feature_width, self.head_width, self.seed + self.drawn)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        self.redraw()
        return self.counted(super().attend(query, key, value, layout))  # (B, H, L, d)

    def features(self, x: Tensor, asks: bool, first: int) -> Tensor:
        self.projection = self.projection.to(x.device)
        return random_exponents(x, self.projection)  # (..., L, m)
