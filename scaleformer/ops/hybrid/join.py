"""Near logits and far sums under one denominator, for one step of decoding; and what both forms count in."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scaleformer.ops.hybrid.quadratic import HIDDEN

# Scores are logarithms to the base of 2: torch's exp2 is as fast where the result is nothing, its exp many times as
# slow there on a CPU (torch 2.13, Intel).
BITS = math.log2(math.e)
# Of a logarithm to the base of 2 whose negative is raised: what is less is nothing beside it, its inverse overflows.
LOWEST = -115.0


def join(scores: Tensor, values: Tensor, far: Tensor) -> Tensor:
    """The means (..., C, e) of near and far values.

    scores  (..., C, W) near logits times `BITS`, overwritten; those of hidden keys are `HIDDEN` or less
    values  (..., W, e)
    far     (..., C, e+1) the sums of far scores times [v, 1]

    Where there is no key at all the mean is zero.
    """
    e = values.shape[-1]
    top = torch.maximum(scores.amax(-1, keepdim=True), far[..., e:].log2())  # (..., C, 1)
    none = top < HIDDEN / 2
    top = top.masked_fill(none, 0.0)
    weights = scores.sub_(top).exp2_()  # (..., C, W)
    far = far * inverse_power(top)  # (..., C, e+1)
    total = weights.sum(-1, keepdim=True) + far[..., e:]  # (..., C, 1)
    return (weights @ values + far[..., :e]) / total.masked_fill(none, 1.0)


def inverse_power(logarithm: Tensor) -> Tensor:
    """2 to the minus `logarithm`, elementwise; no more than fits."""
    return (-logarithm.clamp(min=LOWEST)).exp2()
