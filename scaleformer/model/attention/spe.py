"""Kernelized attention with stochastic positional encoding."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from scaleformer.model.attention.estimates import Held
from scaleformer.model.attention.kernelized import KernelizedAttention
from scaleformer.model.attention.options import Algorithm, FeatureMap
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Positive

BLOCK_NUMBERS = 1 << 20


class StochasticPositionsAttention(KernelizedAttention):
    """Kernelized attention of q_m = sum_c Q_mc A_c(m) and k_n = sum_c K_nc B_c(n), vectors of R random realizations.

    For each component c of a head, with learned frequencies f, phases t, gains l and a gate g, and normal noise Z,

        A_c(m) = sum_k l_ck (cos(2 pi f_ck m + t_ck) Z_ck + sin(2 pi f_ck m + t_ck) Z'_ck) + (1 - g_c)^(1/2) Z''_c
        B_c(n) = the same without the phases,

    so that A_c(m) . B_c(n) / R is sum_k l_ck^2 cos(2 pi f_ck (m - n) + t_ck) + 1 - g_c on average: a relative position
    for every component, at linear cost. sum_k l_ck^2 = g_c.
    Cost O((L + S) d R K) time, O((L + S) d K) memory; decoding keeps one R x (d+1) matrix a head.
    Source: [Liutkus 2021], SineSPE with gating (section 3.3). Training draws a new Z for every batch; otherwise one
    draw is kept, so that translation is deterministic.
    Left out: the convolutional variant, and sharing Z between layers.

    realizations  R
    sines         K
    """

    held: ClassVar[Held] = Held(tiles=400)
    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    absolute_positions: ClassVar[bool] = False
    noise: Tensor

    def __init__(
        self, site: str, width: int, heads: int, realizations: Positive = 64, sines: Positive = 5,
        feature_map: FeatureMap = "elu1", algorithm: Algorithm = "auto",
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads, feature_map, algorithm)
        self.feature_width = realizations
        shape = heads, self.head_width, sines
        self.raw_frequencies = nn.Parameter(torch.randn(shape) - 2)  # periods of about 5 to 50 tokens
        self.phases = nn.Parameter(0.5 * torch.randn(shape))
        self.raw_gains = nn.Parameter(torch.randn(shape))
        self.raw_gates = nn.Parameter(torch.ones(heads, self.head_width))
        self.register_buffer("noise", torch.randn(heads, self.head_width, 2 * sines + 1, realizations))
        self.drawn: Tensor | None = None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        self.drawn = torch.randn_like(self.noise) if self.training else None
        return super().attend(query, key, value, layout)

    def features(self, x: Tensor, asks: bool, first: int) -> Tensor:
        noise = self.noise if self.drawn is None or not self.training else self.drawn  # (H, d, 2K+1, R)
        H, d, size, R = noise.shape
        gate = self.raw_gates.sigmoid()[..., None]  # (H, d, 1)
        gains = (gate * self.raw_gains.softmax(-1)).sqrt()  # (H, d, K)
        weights = torch.cat([gains, gains, (1 - gate).sqrt()], dim=-1)[..., None] * noise  # (H, d, 2K+1, R)
        weights = weights.reshape(H, d * size, R) * (d * R) ** -0.25
        exact = torch.promote_types(x.dtype, torch.float32)  # positions are too large for bf16
        frequencies = self.raw_frequencies.to(exact).sigmoid() / 2  # f, at most a wave in two tokens: (H, d, K)
        positions = torch.arange(first, first + x.shape[-2], device=x.device, dtype=exact)  # (L,)
        block = max(1, BLOCK_NUMBERS // (x[..., 0, :].numel() * size))
        outputs = []
        for part, places in zip(x.split(block, -2), positions.split(block), strict=True):
            # Sine and cosine are slow for angles far from zero: subtract whole turns.
            angles = 2 * math.pi * (places[:, None, None] * frequencies[:, None]).frac()  # (H, block, d, K)
            if asks:
                angles = angles + self.phases.to(exact)[:, None]  # (H, block, d, K)
            waves = functional.pad(torch.cat([angles.cos(), angles.sin()], dim=-1), (0, 1), value=1.0)
            spread = (part[..., None] * waves.to(x.dtype)).flatten(-2)  # (B, H, block, d (2K+1))
            outputs.append(spread @ weights.to(x.dtype))  # (B, H, block, R)
        return torch.cat(outputs, dim=-2)  # (B, H, L, R)
