"""The feature maps phi: element-wise, never negative; they replace the exponential of softmax attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_BITS = math.log2(math.e)


@dataclass(frozen=True)
class FeatureMap:
    """phi, its slope as a function of phi's own value (which the backward pass has), and its inverse.

    The inverse maps a positive value to an argument with that value.
    """

    value: Callable[[Tensor], Tensor]
    slope_of_value: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return self.value(x)


def _elu1_value(x: Tensor) -> Tensor:
    """elu(x) + 1 = exp(min(x, 0)) + max(x, 0), by powers of two: on a CPU torch takes elu and exp from one vendor's
    library, where they are three times as slow as exp2 on another vendor's CPU."""
    return (x * _BITS).clamp_(max=0).exp2_().add_(x.clamp(min=0))


class _Elu1(torch.autograd.Function):
    """`_elu1_value`; its slope needs only its value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        y = _elu1_value(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return grad * y.clamp(max=1)


def _elu1(x: Tensor) -> Tensor:
    if not (x.requires_grad and torch.is_grad_enabled()):
        return _elu1_value(x)
    out: Tensor = _Elu1.apply(x)
    return out


def _inverse_elu1(y: Tensor) -> Tensor:
    return torch.where(y > 1, y - 1, y.clamp(max=1).log())


FEATURE_MAPS: dict[str, FeatureMap] = {
    "elu1": FeatureMap(_elu1, lambda y: y.clamp(max=1), _inverse_elu1),
    "relu": FeatureMap(functional.relu, lambda y: (y > 0).to(y.dtype), torch.clone),
    "exp": FeatureMap(torch.exp, lambda y: y, torch.log),
    "squared_relu": FeatureMap(lambda x: functional.relu(x).square(), lambda y: 2 * y.sqrt(), torch.sqrt),
}
MAPPED = FeatureMap(torch.clone, torch.ones_like, torch.clone)


def get_feature_map(name: str) -> FeatureMap:
    """The feature map called `name`: `elu1` (elu(x) + 1, [Katharopoulos 2020]), `relu`, `exp` or `squared_relu`.

    `mapped` is for arguments that are already features of some map, and so never negative.
    Raises ValueError for an unknown name.
    """
    if name == "mapped":
        return MAPPED
    if name not in FEATURE_MAPS:
        raise ValueError(f"feature_map is {name!r}: it must be one of {', '.join(FEATURE_MAPS)}")
    return FEATURE_MAPS[name]
