"""The fused output layer and loss against torch's own cross-entropy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from scaleformer.ops.loss import cross_entropy as module
from scaleformer.ops.loss.cross_entropy import linear_cross_entropy


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


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("count", [0, 5])
def test_tokens_that_are_not_real_do_not_count(count: int, label_smoothing: float) -> None:
    torch.manual_seed(0)
    states = torch.randn(23, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    targets, real = torch.randint(11, (23,)), torch.randperm(23) < count
    loss = linear_cross_entropy(states, weight, targets, label_smoothing, chunk_size=8, real=real)
    found = torch.autograd.grad(3 * loss, (states, weight))
    if not count:
        assert loss == 0
        assert all((gradient == 0).all() for gradient in found)
        return
    expected = cross_entropy((states @ weight.T)[real], targets[real], label_smoothing=label_smoothing)
    torch.testing.assert_close(loss, expected)
    for got, want in zip(found, torch.autograd.grad(3 * expected, (states, weight)), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e7, 1e10, 1e30])
def test_a_certain_token_costs_nothing(size: float) -> None:
    """The loss is not slightly negative, as rounding could make it."""
    states = torch.tensor([[size], [1.3 * size], [1.7 * size]])
    weight = torch.full((50, 1), -1.0)
    weight[7] = 1.0
    assert linear_cross_entropy(states, weight, torch.full((3,), 7)) == 0


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_no_gradients_are_made_where_none_are_taken(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError

    states, weight, targets = torch.randn(20, 8), torch.nn.Parameter(torch.randn(50, 8)), torch.randint(50, (20,))
    expected = linear_cross_entropy(states, weight, targets)
    monkeypatch.setattr(module, "weight_gradient", fail)
    with context():
        assert linear_cross_entropy(states, weight, targets) == expected


def test_large_vocabularies_fit_into_half_precision() -> None:
    torch.manual_seed(1)
    states = torch.randn(20, 8, requires_grad=True)
    weight = (torch.randn(70_000, 8) * 0.01).requires_grad_()
    targets = torch.randint(70_000, (20,))
    wanted = torch.autograd.grad(cross_entropy(states @ weight.T, targets), (states, weight))
    with torch.autocast("cpu", torch.float16):
        loss = linear_cross_entropy(states, weight, targets)
    for got, want in zip(torch.autograd.grad(loss, (states, weight)), wanted, strict=True):
        assert (got - want).norm() < 5e-3 * want.norm()


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
    with pytest.raises(ValueError, match="at least one token"):
        linear_cross_entropy(torch.empty(0, 4), torch.empty(5, 4), torch.empty(0, dtype=torch.long))


@pytest.mark.parametrize(
    ("states", "weight", "targets"), [((3, 4), (5, 6), (3,)), ((3, 4), (5, 4), (2,)), ((3, 4), (5, 4), (3, 1))]
)
def test_shapes_that_do_not_fit_are_named(
    states: tuple[int, ...], weight: tuple[int, ...], targets: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"they must be \(T, D\), \(V, D\) and \(T,\)"):
        linear_cross_entropy(torch.zeros(states), torch.zeros(weight), torch.zeros(targets, dtype=torch.long))


def test_a_gradient_of_the_gradient_is_refused() -> None:
    """It would ignore how the logits depend on the inputs."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(4, 3, generator=generator).requires_grad_()
    loss = linear_cross_entropy(states, torch.randn(5, 3, generator=generator), torch.tensor([0, 1, 2, 4]))
    (gradient,) = torch.autograd.grad(loss.square(), states, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
