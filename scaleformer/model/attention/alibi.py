"""Softmax attention with linear biases."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.model.attention.relative_softmax import RelativeSoftmaxAttention, Terms


class AlibiAttention(RelativeSoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d) - m_h |j - i|) V_j, with m_h = 2^(-8h/H) for the heads h = 1 .. H.

    Cost O(L^2 d) time; memory O(L^2) for short texts and O(L) for long ones; decoding keeps every key and value.
    Source: [Press 2022, section 3], with the distance on both sides in the encoder. If H is not a power of two, the
    paper's code interpolates between the slopes for two powers; here the formula holds for every H.
    """

    def terms(self, reach: int, like: Tensor) -> Terms:
        exact = torch.promote_types(like.dtype, torch.float32)
        distance = torch.arange(-reach, reach + 1, device=like.device).abs()  # (2 reach + 1,)
        exponents = -8 * torch.arange(1, self.heads + 1, device=like.device, dtype=exact) / self.heads  # (H,)
        return Terms(bias=-torch.exp2(exponents)[:, None] * distance)  # (H, 2 reach + 1)
