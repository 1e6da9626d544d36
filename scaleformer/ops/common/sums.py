"""From sums over the keys to means, and back. The last column of a sum is the sum of the scores: U = [V, 1]."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_denominator(sums: Tensor, out: Tensor | None = None) -> Tensor:
    """One over the last column of sums (..., e+1): (..., 1); one where there is no key, and so nothing to divide."""
    denominator = sums[..., -1:].clone(memory_format=torch.contiguous_format)  # a column is slow to read: once
    return torch.reciprocal(denominator.masked_fill_(denominator == 0, 1.0), out=out)


def normalise(sums: Tensor) -> Tensor:
    """Numerators over denominators (..., e) from sums (..., e+1); zeros where there is no key."""
    denominator = sums[..., -1:]
    return sums[..., :-1] / denominator.masked_fill(denominator == 0, 1.0)  # (..., e)


def sums_gradient(grad: Tensor, means: Tensor, inverse: Tensor) -> Tensor:
    """The gradient (..., e+1) of the sums, from that of the means (..., e), the means and one over the denominators."""
    d_denominator = (grad * means).sum(-1, keepdim=True).neg_()  # (..., 1)
    return torch.cat([grad, d_denominator], dim=-1).mul_(inverse)  # (..., e+1)
