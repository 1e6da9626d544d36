"""The feature maps against their definitions in double precision, and their slopes against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaleformer.ops import get_feature_map
from scaleformer.ops.common.feature_maps import FEATURE_MAPS

DEFINITIONS = {
    "elu1": lambda x: torch.nn.functional.elu(x) + 1,
    "relu": lambda x: x.clamp(min=0),
    "exp": lambda x: x.exp(),
    "squared_relu": lambda x: x.clamp(min=0) ** 2,
}


def points(dtype: torch.dtype) -> Tensor:
    return torch.cat([torch.linspace(-30, 30, 1201), torch.tensor([-1e4, -104.0, -88.0, 0.0, -0.0])]).to(dtype)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_value_of_single_precision(name: str) -> None:
    x = points(torch.float32)
    if name == "exp":
        x = x[x < 88]
    expected = DEFINITIONS[name](x.double())
    if name == "elu1":  # elu(x) + 1 cancels where x is far below zero, in double precision, too
        expected = torch.where(x > 0, expected, x.double().exp())
    out = get_feature_map(name)(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=3e-6, atol=1e-37)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_slope_is_that_of_autograd_and_of_the_value(name: str) -> None:
    phi = get_feature_map(name)
    x = points(torch.float64)[:1201:7].clamp(max=20)
    x = x[x != 0].requires_grad_()  # there some have a kink
    assert torch.autograd.gradcheck(phi, (x,))
    value = phi(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(phi.slope_of_value(value.detach()), slope)


def test_nothing_is_kept_where_no_gradient_is_wanted() -> None:
    x = torch.randn(3, generator=torch.Generator().manual_seed(0))
    phi = get_feature_map("elu1")
    assert not phi(x).requires_grad
    with torch.no_grad():
        assert not phi(x.clone().requires_grad_()).requires_grad
    assert phi(x.clone().requires_grad_()).requires_grad


def test_inverse() -> None:
    y = torch.tensor([1e-3, 0.5, 1.0, 1.5, 40.0], dtype=torch.float64)
    for name in FEATURE_MAPS:
        phi = get_feature_map(name)
        torch.testing.assert_close(phi(phi.inverse(y)), y)


def test_unknown_map() -> None:
    with pytest.raises(ValueError, match="feature_map is 'gelu': it must be one of elu1, relu, exp, squared_relu"):
        get_feature_map("gelu")
