"""The feature maps phi: element-wise, never negative, in the place of the exponential of softmax attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class FeatureMap:
    """phi and its slope, an expression of phi's own value: what a backward pass has at hand."""

    value: Callable[[Tensor], Tensor]
    slope_of_value: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return self.value(x)


FEATURE_MAPS: dict[str, FeatureMap] = {
    "elu1": FeatureMap(lambda x: functional.elu(x) + 1, lambda y: y.clamp(max=1)),
    "relu": FeatureMap(functional.relu, lambda y: (y > 0).to(y.dtype)),
    "exp": FeatureMap(torch.exp, lambda y: y),
    "squared_relu": FeatureMap(lambda x: functional.relu(x).square(), lambda y: 2 * y.sqrt()),
}


def get_feature_map(name: str) -> FeatureMap:
    """The feature map called `name`: `elu1` (elu(x) + 1, [Katharopoulos 2020]), `relu`, `exp` or `squared_relu`.

    Raises ValueError if there is none.
    """
    if name not in FEATURE_MAPS:
        raise ValueError(f"feature_map is {name!r}: choose one of {', '.join(FEATURE_MAPS)}")
    return FEATURE_MAPS[name]
