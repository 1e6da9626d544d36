"""Half precision: sums far beyond its range."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaleformer.ops import relative_kernel_attention

LENGTH, WIDTH, HORIZON = 800, 16, 4
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])


def arguments(dtype: torch.dtype) -> list[Tensor]:
    """q, k, v and rel: sums of 800 scores of up to 16 * 100 * 200; fp16 ends at 65,504."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(1, 1, LENGTH, WIDTH)] * 3 + [(2 * HORIZON + 1, WIDTH)]
    made = [30.0 * torch.randn(shape, generator=generator) for shape in shapes]
    return [tensor.to(dtype).requires_grad_() for tensor in made]


@DTYPES
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
def test_sums_beyond_half_precision(algorithm: str, causal: bool, dtype: torch.dtype) -> None:
    """No NaN, and only the error of rounding arguments and results, compared with float64."""
    low = arguments(dtype)
    out = relative_kernel_attention(*low, causal=causal, algorithm=algorithm)
    assert out.dtype == dtype
    out.float().mean().backward()
    exact = [tensor.detach().double().requires_grad_() for tensor in low]
    expected = relative_kernel_attention(*exact, causal=causal, algorithm="quadratic")
    expected.mean().backward()
    error = torch.finfo(dtype).eps * float(expected.detach().abs().max())
    torch.testing.assert_close(out.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=2 * error)
    for ours, theirs in zip(low, exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert ours.grad.isfinite().all()
        bound = 0.05 * float(theirs.grad.abs().max())
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=0.05, atol=bound)
