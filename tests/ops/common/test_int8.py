"""Products with weights in 8 bits, beside the exact ones."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.common.matmul import Int8Weight, Linear


@pytest.mark.parametrize("shape", [(1, 32), (5, 32), (2, 3, 32)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_is_off_by_no_more_than_rounding(shape: tuple[int, ...], with_bias: bool) -> None:
    """A weight of row n is off by scale_n / 2 at most, x by a step of its range in 127 parts."""
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(48, 32, generator=generator), torch.randn(shape, generator=generator)
    bias = torch.randn(48, generator=generator) if with_bias else None
    exact = torch.nn.functional.linear(x, weight, bias)
    found = Int8Weight(weight, bias)(x)
    off_weight = weight.abs().amax(1) / 127 / 2
    off_x = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 127
    most = x.abs().sum(-1, keepdim=True) * off_weight + 32 * off_x * (weight.abs().amax(1) + off_weight)
    assert found.shape == exact.shape
    assert ((found - exact).abs() <= most).all()
    assert (found - exact).abs().mean() < 0.02 * exact.abs().mean()


def test_rows_have_scales_of_their_own() -> None:
    weight = torch.eye(4) * torch.tensor([1e-3, 1.0, 1e3, 0.0])[:, None]
    torch.testing.assert_close(Int8Weight(weight)(torch.ones(1, 4))[0], weight.diagonal(), rtol=0.02, atol=0.0)


def test_a_linear_map_takes_it() -> None:
    torch.manual_seed(1)
    linear = Linear(16, 8)
    x = torch.randn(3, 16)
    exact = linear(x)
    linear.int8 = Int8Weight(linear.weight, linear.bias)
    assert torch.equal(linear(x), linear.int8(x))
    torch.testing.assert_close(linear(x), exact, atol=0.05, rtol=0.0)


def test_it_is_for_cpus_alone() -> None:
    with pytest.raises(ValueError, match="torch has no 8-bit products for this device or CPU: set precision"):
        Int8Weight(torch.empty(2, 2, device="meta"))
