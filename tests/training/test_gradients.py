"""Norms and factors equal those of torch."""

from __future__ import annotations

import math

import pytest
import torch

from scaleformer.training.gradients import clip_factor, largest_gradients, scale_, total_norm


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(1)
    made = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((3, 4), (5,), ())]
    for parameter in made:
        parameter.grad = torch.randn(parameter.shape)
    return made


@pytest.mark.parametrize("limit", [0.5, 100.0, None], ids=["clipped", "below", "none"])
def test_norm_and_factor_clip_as_torch_does(limit: float | None) -> None:
    ours, theirs = parameters(), parameters()
    gradients = [p.grad for p in ours if p.grad is not None]
    norm = total_norm(gradients, torch.device("cpu"))
    scale_(gradients, clip_factor(float(norm), limit))
    expected = torch.nn.utils.clip_grad_norm_(theirs, math.inf if limit is None else limit)
    torch.testing.assert_close(norm, expected)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad, other.grad)


def test_no_gradients() -> None:
    assert float(total_norm([], torch.device("cpu"))) == 0
    scale_([], 2.0)
    assert largest_gradients([]) == "none"


def test_non_finite_gradients_come_first() -> None:
    named = [(str(number), parameter) for number, parameter in enumerate(parameters())]
    assert named[1][1].grad is not None
    named[1][1].grad[0] = math.nan
    assert largest_gradients(named, count=2).split(", ")[0] == "1 nan"
    assert len(largest_gradients(named, count=2).split(", ")) == 2
