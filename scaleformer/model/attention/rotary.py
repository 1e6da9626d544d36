"""Softmax attention with rotary positions."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.attention.state import KeyValueCache
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Range


class RotaryAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j((rho_i Q_i) . (rho_j K_j) / sqrt(d)) V_j, with rho_m the rotation by position m.

    rho_m turns each pair of components (2c, 2c+1) by the angle m base^(-2c/d), so that a score depends on the distance
    j - i alone. Cost O(L^2 d) time, O(L) memory; decoding keeps every rotated key and every value.
    Source: [Su 2021, RoFormer, equations 14 to 16 and 34].
    Left out: scaling of the angles for texts longer than in training, for which papers disagree.

    base  the slowest pair turns by about 1/base radians a token
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    absolute_positions: ClassVar[bool] = False

    def __init__(self, site: str, width: int, heads: int, base: Annotated[float, Range(gt=1)] = 10_000.0) -> None:
        super().__init__(site, width, heads)
        if self.head_width % 2:
            raise ValueError(
                f"rotary attention rotates pairs and cannot use a head width of {self.head_width}: set model.width and "
                "model.heads so that model.width / model.heads is even"
            )
        self.base = base

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        positions = torch.arange(query.shape[2], device=query.device)  # (L,)
        query, key = rotate(query, positions, self.base), rotate(key, positions, self.base)  # (B, H, L, d)
        return super().attend(query, key, value, layout)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        here = torch.tensor(position, device=query.device)
        query, key = rotate(query, here, self.base), rotate(key, here, self.base)  # (B*K, H, d)
        return super().attend_step(query, key, value, position, segments, state)


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """x (..., L, d) rotated by its positions (L,), or (..., d) by one position (): the same shape."""
    d = x.shape[-1]
    exact = torch.promote_types(x.dtype, torch.float32)  # at position 1000 a bf16 angle is off by a full turn
    rates = base ** (-torch.arange(0, d, 2, device=x.device, dtype=exact) / d)  # (d/2,)
    angles = positions.to(exact)[..., None] * rates  # (L, d/2)
    cos, sin = angles.cos(), angles.sin()  # (L, d/2)
    even, odd = x[..., 0::2].to(exact), x[..., 1::2].to(exact)  # (..., L, d/2)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)  # (..., L, d/2, 2)
    return turned.flatten(-2).to(x.dtype)  # (..., L, d)
