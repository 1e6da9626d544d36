"""The parts of layers."""

from __future__ import annotations

import pytest
import torch

from scaleformer.model.layers import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_keeps_the_mean(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.ones(503, 199, dtype=dtype, requires_grad=True)  # not a multiple of the four numbers drawn at once
    out = Dropout(p)(x)
    out.sum().backward()
    kept = round(2**16 * (1 - p)) / 2**16
    assert out.dtype == dtype
    assert sorted({float(value) for value in out.detach().unique()}) == [
        0.0,
        float(torch.tensor(1 / kept, dtype=dtype)),
    ]
    assert x.grad is not None
    assert (x.grad == out).all()
    share = float((out != 0).float().mean())
    assert abs(share - kept) < 5 * (p * (1 - p) / x.numel()) ** 0.5


def test_dropout_follows_the_seed() -> None:
    x, dropout = torch.ones(5, 7), Dropout(0.5)
    first, second = (torch.manual_seed(seed) and dropout(x) for seed in (3, 3))
    assert (first == second).all()
    assert (dropout(x) != first).any()


@pytest.mark.parametrize("p", [0.0, 1.0, 1e-6])
def test_dropout_of_nothing_and_of_all(p: float) -> None:
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(Dropout(p)(x), x * (p < 1))
    assert (Dropout(0.5).eval()(x) == x).all()
