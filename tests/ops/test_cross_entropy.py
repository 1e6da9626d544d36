"""The fused output layer and loss against torch's own cross-entropy."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from scaleformer.ops.cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 23])
def test_loss_and_gradients_equal_torch(tokens: int, label_smoothing: float) -> None:
    torch.manual_seed(tokens)
    states = torch.randn(tokens, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(11, (tokens,))
    expected = cross_entropy(states @ weight.T, targets, label_smoothing=label_smoothing)
    wanted = torch.autograd.grad(3 * expected, (states, weight))
    loss = linear_cross_entropy(states, weight, targets, label_smoothing, chunk_size=8)
    torch.testing.assert_close(loss, expected)
    for got, want in zip(torch.autograd.grad(3 * loss, (states, weight)), wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_large_logits_do_not_overflow() -> None:
    states = torch.full((4, 8), 1e3)
    weight = torch.eye(8) * 1e3
    loss = linear_cross_entropy(states, weight, torch.tensor([0, 1, 2, 3]))
    assert torch.isfinite(loss)


def test_autocast_products_keep_sums_in_fp32() -> None:
    torch.manual_seed(1)
    states, weight = torch.randn(2000, 32), torch.randn(500, 32) * 0.2
    targets = torch.randint(500, (2000,))
    exact = cross_entropy(states @ weight.T, targets)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(states, weight, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=2e-3, atol=0)


def test_no_logits_of_the_whole_batch_are_kept() -> None:
    states = torch.randn(4096, 8, requires_grad=True)
    weight = torch.randn(1000, 8, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        linear_cross_entropy(states, weight, torch.zeros(4096, dtype=torch.long))
    assert sum(kept) == states.numel() + weight.numel()


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="no token"):
        linear_cross_entropy(torch.empty(0, 4), torch.empty(5, 4), torch.empty(0, dtype=torch.long))


def test_a_gradient_of_the_gradient_is_refused() -> None:
    """It would lack what the logits have to do with it."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(4, 3, generator=generator).requires_grad_()
    loss = linear_cross_entropy(states, torch.randn(5, 3, generator=generator), torch.tensor([0, 1, 2, 4]))
    (gradient,) = torch.autograd.grad(loss.square(), states, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
