"""Positive orthogonal random features: an unbiased estimate of the softmax kernel, in linear time."""

from __future__ import annotations

import torch
from torch import Tensor


def orthogonal_projection(features: int, width: int, seed: int) -> Tensor:
    """Rows w_r (m, d), each normally distributed, orthogonal in groups of d ([Choromanski 2021] section 2.4).

    On the CPU; the same seed gives the same rows.
    """
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(-(-features // width)):
        normal = torch.randn(width, width, generator=generator, device="cpu")
        q, r = torch.linalg.qr(normal)
        blocks.append(
            (q * r.diagonal().sign()).T
        )  # without the signs the directions are not uniform and the kernel is biased
    directions = torch.cat(blocks)[:features]  # (m, d)
    lengths = torch.randn(features, width, generator=generator, device="cpu").norm(dim=1)  # (m,)
    return directions * lengths[:, None]


def random_exponents(x: Tensor, projection: Tensor) -> Tensor:
    """w_r . x' - |x'|^2 / 2 with x' = x / d^(1/4). With phi the exponential of this, phi(q).phi(k) / m is
    exp(q.k / sqrt(d)) on average.

    x (..., L, d), projection (m, d) -> (..., L, m) in float32 at least ([Choromanski 2021] lemma 1).
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        x, projection = x.to(dtype) * x.shape[-1] ** -0.25, projection.to(dtype)
        return x @ projection.T - x.square().sum(-1, keepdim=True) / 2  # (..., L, m)
