"""R-Drop with its output layer against torch's cross-entropy and divergence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from scaleformer.ops.loss import r_drop as module
from scaleformer.ops.loss.cross_entropy import linear_cross_entropy
from scaleformer.ops.loss.r_drop import linear_r_drop


def slow(states: Tensor, weight: Tensor, targets: Tensor, alpha: float, smoothing: float) -> tuple[Tensor, Tensor]:
    x, z = states @ weight.T
    log_p, log_q = x.log_softmax(-1), z.log_softmax(-1)
    entropy = sum(cross_entropy(logits, targets, label_smoothing=smoothing) for logits in (x, z)) / 2
    apart = sum(kl_div(a, b, reduction="sum", log_target=True) for a, b in ((log_p, log_q), (log_q, log_p)))
    return entropy + alpha / 4 * apart / len(targets), entropy


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 23])
def test_loss_and_gradients_equal_torch(tokens: int, alpha: float, label_smoothing: float) -> None:
    torch.manual_seed(tokens)
    states = torch.randn(2, tokens, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(11, (tokens,))
    expected, entropy = slow(states, weight, targets, alpha, label_smoothing)
    wanted = torch.autograd.grad(3 * expected, (states, weight))
    loss, shown = linear_r_drop(states, weight, targets, alpha, label_smoothing, chunk_size=8)
    torch.testing.assert_close((loss, shown), (expected, entropy))
    assert not shown.requires_grad
    for got, want in zip(torch.autograd.grad(3 * loss, (states, weight)), wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_equal_passes_have_the_loss_and_gradients_of_one() -> None:
    torch.manual_seed(1)
    states, weight = torch.randn(9, 6, dtype=torch.float64), torch.randn(11, 6, dtype=torch.float64)
    targets = torch.randint(11, (9,))
    results = []
    for once in (True, False):
        h, W = states.clone().requires_grad_(), weight.clone().requires_grad_()
        loss = linear_cross_entropy(h, W, targets) if once else linear_r_drop(torch.stack((h, h)), W, targets, 5.0)[0]
        results.append((loss.detach(), *torch.autograd.grad(loss, (h, W))))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_products_keep_sums_in_fp32(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    states = torch.randn(2, 2000, 32, requires_grad=True)
    weight = (torch.randn(500, 32) * 0.2).requires_grad_()
    targets = torch.randint(500, (2000,))
    exact, _ = slow(states, weight, targets, 5.0, 0.1)
    wanted = torch.autograd.grad(exact, (states, weight))
    with torch.autocast("cpu", dtype):
        loss, _ = linear_r_drop(states, weight, targets, 5.0, 0.1)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=2e-3, atol=0)
    for got, want in zip(torch.autograd.grad(loss, (states, weight)), wanted, strict=True):
        assert (got - want).norm() < 2e-2 * want.norm()


def test_predictions_that_exclude_each_other_stay_finite() -> None:
    states = torch.tensor([[[1e3]], [[-1e3]]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    loss, shown = linear_r_drop(states, weight, torch.tensor([0]), alpha=4.0)
    assert (float(loss.detach()), float(shown)) == (1000 + 4000, 1000)  # CE of 0 and 2,000; KL of 2,000 each
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, (states, weight)))


def test_no_logits_of_the_whole_batch_are_kept() -> None:
    states = torch.randn(2, 2048, 8, requires_grad=True)
    weight = torch.randn(1000, 8, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        linear_r_drop(states, weight, torch.zeros(2048, dtype=torch.long), 5.0)
    assert sum(kept) == states.numel() + weight.numel()


def test_no_gradients_are_made_where_none_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError

    states, weight, targets = torch.randn(2, 20, 8), torch.nn.Parameter(torch.randn(50, 8)), torch.randint(50, (20,))
    expected = linear_r_drop(states, weight, targets, 5.0)
    monkeypatch.setattr(module, "weight_gradient", fail)
    with torch.no_grad():
        assert linear_r_drop(states, weight, targets, 5.0) == expected


@pytest.mark.parametrize(
    ("states", "tokens", "message"),
    [
        pytest.param((2, 0, 4), 0, "at least one token", id="none"),
        pytest.param((3, 5, 4), 5, r"\(2, T, D\), \(V, D\) and \(T,\)", id="three passes"),
        pytest.param((2, 5, 3), 5, r"\(2, T, D\)", id="another width"),
        pytest.param((2, 4, 4), 5, r"\(2, T, D\)", id="fewer tokens"),
        pytest.param((5, 4), 5, r"\(2, T, D\)", id="one pass"),
    ],
)
def test_shapes_that_do_not_fit(states: tuple[int, ...], tokens: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linear_r_drop(torch.zeros(states), torch.zeros(7, 4), torch.zeros(tokens, dtype=torch.long), 5.0)
