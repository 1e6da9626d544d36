"""From sums over the keys to means, and the gradients back. The last column of a sum is the sum of scores: U = [V, 1].

A sum of scores close to the smallest normal number of its dtype has lost its precision, and its gradients, which
multiply its inverse by values, may be infinite. It counts as zero: the row has no key.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def smallest_sum(dtype: torch.dtype) -> float:
    """The smallest sum of scores that counts: 1e-31 in float32, so that its inverse can be multiplied by 3e7."""
    return torch.finfo(dtype).tiny / torch.finfo(dtype).eps


def no_key(denominator: Tensor) -> Tensor:
    """Whether a sum of non-negative scores is too small to divide by: bool, elementwise."""
    return denominator < smallest_sum(denominator.dtype)


def inverse_denominator(sums: Tensor, out: Tensor | None = None) -> Tensor:
    """One over the last column of sums (..., e+1): (..., 1); zero where there is no key, so that the mean is zero."""
    denominator = sums[..., -1:].clone(memory_format=torch.contiguous_format)  # a column is slow to read: read it once
    return torch.reciprocal(denominator.masked_fill_(no_key(denominator), math.inf), out=out)


def normalise(sums: Tensor) -> Tensor:
    """Numerators over denominators (..., e) from sums (..., e+1); zeros where there is no key."""
    denominator = sums[..., -1:]
    return sums[..., :-1] / denominator.masked_fill(no_key(denominator), math.inf)  # (..., e)


def sums_gradient(grad: Tensor, means: Tensor, inverse: Tensor) -> Tensor:
    """The gradient (..., e+1) of the sums, from that of the means (..., e), the means and one over the denominators."""
    d_denominator = (grad * means).sum(-1, keepdim=True).neg_()  # (..., 1)
    return torch.cat([grad, d_denominator], dim=-1).mul_(inverse)  # (..., e+1)


def softmax_gradient(d_weights: Tensor, weights: Tensor) -> Tensor:
    """The gradient of scores from that of their softmax weights (..., S), perhaps less precise; overwrites d_weights.

    The mean comes from these numbers, not from the output: so they cancel whatever the rounding of products.
    """
    if weights.dtype == d_weights.dtype:
        return torch.ops.aten._softmax_backward_data(d_weights, weights, -1, weights.dtype)  # type: ignore[no-any-return]
    weights = weights.to(d_weights.dtype)  # converted once, not by each operator
    d_scores = d_weights.mul_(weights)
    total = weights.sum(-1, keepdim=True)  # not quite 1; 0 in a row without a key
    mean = d_scores.sum(-1, keepdim=True).div_(total.clamp_(min=0.5))
    return d_scores.addcmul_(weights, mean, value=-1)
