"""Scores that underflow: in every form such rows are those without a key, and the other rows are as in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaleformer.ops import (
    causal_init,
    causal_step,
    cross_state,
    cross_step,
    relative_kernel_attention,
)
from scaleformer.ops.common.sums import inverse_denominator, normalise, smallest_sum
from tests.ops.inputs import gradients
from tests.ops.kernel.naive import dense_attention

LENGTH = 40
LOW = slice(20)  # the queries that underflow
LEAST = smallest_sum(torch.float32)
each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_algorithm = pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
each_relative = pytest.mark.parametrize("relative", [False, True], ids=["plain", "relative"])


def make(relative: bool) -> list[Tensor]:
    """q, k, v and rel: phi(-48)^2 is 2e-42, and a sum of them too small to divide by."""
    generator = torch.Generator().manual_seed(2)
    q, k = torch.full((2, 2, LENGTH, 8), -48.0), torch.full((2, 2, LENGTH, 8), -48.0)
    q[:, :, LOW.stop :] = torch.randn(2, 2, LENGTH - LOW.stop, 8, generator=generator)
    v = torch.randn(2, 2, LENGTH, 3, generator=generator)
    return [x.requires_grad_() for x in (q, k, v, *([torch.full((5, 8), -48.0)] if relative else []))]


def assert_low_rows_have_no_key(out: Tensor, truth: Tensor, leaves: list[Tensor], exact: list[Tensor]) -> None:
    """out and truth (B, H, L, e)."""
    assert torch.equal(out[:, :, LOW], torch.zeros_like(out[:, :, LOW]))
    good = slice(LOW.stop, None)
    torch.testing.assert_close(out[:, :, good].double(), truth[:, :, good], rtol=1e-4, atol=1e-5)
    kept = torch.zeros_like(truth)
    kept[:, :, good] = 1.0  # what a low row gathers has no gradient, whatever its own
    for one, other in zip(gradients(out, leaves), gradients(truth * kept, exact), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-5)


@each_direction
@each_algorithm
@each_relative
def test_kernel_attention(causal: bool, algorithm: str, relative: bool) -> None:
    leaves = make(relative)
    exact = [x.detach().double().requires_grad_() for x in leaves]
    out = relative_kernel_attention(*leaves, causal=causal, algorithm=algorithm)
    assert_low_rows_have_no_key(out, dense_attention(*exact, causal=causal), leaves, exact)


@each_relative
def test_steps(relative: bool) -> None:
    q, k, v, *rel = (x.detach() for x in make(relative))
    table = rel[0] if relative else None
    truth = dense_attention(q.double(), k.double(), v.double(), *(x.double() for x in rel), causal=True)
    state = causal_init(2, 2, 8, 3, table)
    for i in range(LENGTH):
        out, state = causal_step(q[:, :, i], k[:, :, i], v[:, :, i], table, state)
        wanted = torch.zeros(2, 2, 3) if i < LOW.stop else truth[:, :, i].float()
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)
        assert (i >= LOW.stop) or (out == 0).all()


def test_steps_to_a_source() -> None:
    q, k, v = (x.detach() for x in make(relative=False))
    truth = dense_attention(q.double(), k.double(), v.double())
    out = cross_step(q, 0, None, cross_state(k, v))
    assert (out[:, :, LOW] == 0).all()
    torch.testing.assert_close(out[:, :, LOW.stop :].double(), truth[:, :, LOW.stop :], rtol=1e-4, atol=1e-5)


@each_direction
@each_algorithm
@pytest.mark.parametrize("level", [30.0, 36.0, 38.0, 40.0, 42.0, 43.0])
def test_gradients_close_to_the_guard(causal: bool, algorithm: str, level: float) -> None:
    """Values of 10, and gradients of 1e4 as a loss that is scaled for float16 has them."""
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(2, 2, LENGTH, 8, generator=generator) * 0.3 - level for _ in range(2))
    v = torch.randn(2, 2, LENGTH, 3, generator=generator) * 10
    leaves = [x.requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    out = relative_kernel_attention(*leaves, causal=causal, algorithm=algorithm)
    truth = dense_attention(*exact, causal=causal)
    kept = (out.detach() != 0).double()
    torch.testing.assert_close(out.double(), truth * kept, rtol=1e-4, atol=1e-4)
    assert kept.all() or level >= 38
    assert not kept.any() or level <= 40
    wanted = gradients(truth * kept * 1e4, exact)
    for one, other in zip(gradients(out * 1e4, leaves), wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3 * float(wanted[2].abs().max()))


def test_the_threshold_of_the_guard() -> None:
    sums = torch.tensor([[1.0, LEAST], [1.0, 0.999 * LEAST], [1.0, 0.0], [1.0, -1e-9], [1.0, float("nan")]])
    inverse = inverse_denominator(sums)[:, 0]
    assert torch.equal(inverse[:4], torch.tensor([1 / LEAST, 0.0, 0.0, 0.0]))
    assert inverse[4].isnan()  # NaN is not hidden
    assert torch.equal(normalise(sums)[:4, 0], inverse[:4])
    assert normalise(sums.double())[1, 0].isfinite()  # float64 has smaller numbers
    assert normalise(sums.double())[1, 0] > 0
