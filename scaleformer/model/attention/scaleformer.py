"""The paper's attention: kernelized, with clipped relative positions, in linear time."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from .kernelized import KernelizedAttention


class ScaleformerAttention(KernelizedAttention):
    """out_i = sum_j s_ij V_j / sum_j s_ij,  s_ij = phi(Q_i).(phi(K_j) + phi(P_clip(j-i, -R, R))).

    Cost O((L + S) d (d + R)) time and O(L + S) memory; decoding keeps one d x (d+1) matrix and R-1 values a head.
    Source: [Scaleformer, equations 9 to 11]; positions are relative, so that none are added to the embeddings.

    horizon  R, the distance in tokens beyond which all keys count as equally far
    """

    absolute_positions: ClassVar[bool] = False

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        horizon: int = 16,
        feature_map: str = "elu1",
        algorithm: str = "auto",
    ) -> None:
        super().__init__(site, width, heads, feature_map, algorithm)
        if horizon < 1:
            raise ValueError(f"model.attention.horizon is {horizon}: it must be at least 1")
        self.horizon = horizon
        self.relative_embedding = nn.Parameter(torch.empty(heads, 2 * horizon + 1, self.head_width))
        self.reset_relative_embedding()

    def reset_relative_embedding(self) -> None:
        """Near rows start large and far rows small, at another rate in each head.

        phi(0) = 1: were P to start at zero, every key of the document would get the same score on top of its own,
        and the average over all of them would drown what is near.
        """
        distance = torch.arange(-self.horizon, self.horizon + 1).abs().float()  # (2R+1,)
        slopes = 2.0 ** -torch.arange(self.heads).float()  # (H,)
        level = (1 - slopes[:, None] * distance).clamp(min=-4.0)  # (H, 2R+1)
        with torch.no_grad():
            self.relative_embedding.normal_(std=0.1).add_(level[:, :, None])

    def relative(self) -> Tensor:
        return self.relative_embedding
