"""The paper's attention: kernelized, with clipped relative positions, in linear time."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from scaleformer.model.attention.kernelized import KernelizedAttention
from scaleformer.model.attention.options import Algorithm, FeatureMap
from scaleformer.ops import get_feature_map
from scaleformer.system.schema import Positive

RAW_FLOOR = 1e-4


class ScaleformerAttention(KernelizedAttention):
    """out_i = sum_j s_ij V_j / sum_j s_ij,  s_ij = phi(Q_i).(phi(K_j) + phi(P_clip(j-i, -R, R))).

    Cost O((L + S) d (d + R)) time and O(L + S) memory; decoding keeps one d x (d+1) matrix and R values a head.
    Source: [Scaleformer, equations 9 to 11]; positions are relative, so that none are added to the embeddings.
    With feature_map "exp" queries may have any size, but keys may not: e^88 overflows float32. A factor common to all
    keys does not cancel, unlike that of a query: it does not apply to P, and a decoder does not know the later keys.

    horizon    R, the distance in tokens beyond which all keys count as equally far
    relative   "mapped": phi is applied to P as to the keys; "raw": P is used directly [Scaleformer 2021]. Entries that
               training makes non-positive count as RAW_FLOOR, since a sum of scores of both signs may vanish
    symmetric  P_-t = P_t [Horn 2021]: R + 1 embeddings a head
    """

    absolute_positions: ClassVar[bool] = False

    def __init__(
        self, site: str, width: int, heads: int, horizon: Positive = 16, feature_map: FeatureMap = "elu1",
        algorithm: Algorithm = "auto", relative: Literal["mapped", "raw"] = "mapped", symmetric: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads, feature_map, algorithm)
        self.by_exponents = False  # phi(K) + phi(P) is not an exponential
        self.horizon = horizon
        self.raw = relative == "raw"
        self.symmetric = symmetric
        rows = horizon + 1 if symmetric else 2 * horizon + 1
        self.relative_embedding = nn.Parameter(torch.empty(heads, rows, self.head_width))
        self.reset_relative_embedding()

    def features(self, x: Tensor, asks: bool, first: int) -> Tensor:
        if asks and self.feature_map == "exp":  # a factor common to a query's scores cancels
            return x - x.detach().amax(-1, keepdim=True)
        return x

    def reset_relative_embedding(self) -> None:
        """Near rows start large and far rows small, at a different rate in each head.

        phi(0) = 1: if P started at zero, every key of the document would get the same extra score, and the average over
        all keys would drown the near ones.
        """
        first = 0 if self.symmetric else -self.horizon
        distance = torch.arange(first, self.horizon + 1).abs().float()  # (2R+1,), or (R+1,) if symmetric
        slopes = 2.0 ** -torch.arange(self.heads).float()  # (H,)
        level = (1 - slopes[:, None] * distance).clamp(min=-4.0)  # (H, 2R+1)
        with torch.no_grad():
            self.relative_embedding.normal_(std=0.1).add_(level[:, :, None])
            if self.raw:
                self.relative_embedding.copy_(get_feature_map("elu1")(self.relative_embedding))

    def relative(self) -> Tensor:
        table: Tensor = self.relative_embedding
        if self.raw:
            table = get_feature_map(self.feature_map).inverse(table.clamp(min=RAW_FLOOR))
        if self.symmetric:
            table = torch.cat([table.flip(1)[:, :-1], table], dim=1)
        return table  # (H, 2R+1, d)
