"""Half precision: sums far beyond its range."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from scaleformer.ops import relative_kernel_attention, segment_gated_attention

LENGTH, WIDTH, HORIZON, RANGE = 800, 16, 4, 2
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])


def arguments(dtype: torch.dtype) -> list[Tensor]:
    """q, k, v, rel and log_gate: sums of 800 scores of up to 16 * 100 * 200; fp16 ends at 65,504."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(1, 1, LENGTH, WIDTH)] * 3 + [(2 * HORIZON + 1, WIDTH), (1, 2 * RANGE + 1)]
    scales = (30.0, 30.0, 30.0, 30.0, 0.5)
    made = [scale * torch.randn(shape, generator=generator) for shape, scale in zip(shapes, scales, strict=True)]
    return [tensor.to(dtype).requires_grad_() for tensor in made]


def plain(causal: bool, algorithm: str) -> Callable[..., Tensor]:
    return lambda q, k, v, rel, gate: relative_kernel_attention(q, k, v, rel, causal=causal, algorithm=algorithm)


def gated(causal: bool, algorithm: str) -> Callable[..., Tensor]:
    segments = (torch.arange(LENGTH) // 40)[None]  # (1, L)
    return lambda q, k, v, rel, gate: segment_gated_attention(
        q, k, v, rel, gate, segments, segments, causal=causal, algorithm=algorithm
    )


@DTYPES
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
@pytest.mark.parametrize("attention", [plain, gated])
def test_sums_beyond_half_precision(
    attention: Callable[[bool, str], Callable[..., Tensor]], algorithm: str, causal: bool, dtype: torch.dtype
) -> None:
    """No NaN, and only the error of rounding arguments and results, compared with float64."""
    low = arguments(dtype)
    out = attention(causal, algorithm)(*low)
    assert out.dtype == dtype
    out.float().mean().backward()
    exact = [tensor.detach().double().requires_grad_() for tensor in low]
    expected = attention(causal, "quadratic")(*exact)
    expected.mean().backward()
    error = torch.finfo(dtype).eps * float(expected.detach().abs().max())
    torch.testing.assert_close(out.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=2 * error)
    for ours, theirs in zip(low, exact, strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None and theirs.grad is not None:
            assert ours.grad.isfinite().all()
            bound = 0.05 * float(theirs.grad.abs().max())
            torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=0.05, atol=bound)
