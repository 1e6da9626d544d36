"""Fading sums against the recurrence."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.kernel.fading import fading_sums


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 23])
@pytest.mark.parametrize("strong", [1.0, 400.0], ids=["gentle", "to nothing"])
def test_chunks_give_the_recurrence_and_its_gradients(length: int, strong: float) -> None:
    generator = torch.Generator().manual_seed(length)
    shapes = ((2, 3, length, 6), (2, 3, length, 6), (2, 3, length, 5), (2, 3, length))
    q, k, u, gate = (torch.randn(shape, generator=generator, dtype=torch.double) for shape in shapes)
    gate = -strong * gate.abs() * (torch.rand(gate.shape, generator=generator) < 0.3)
    leaves = [x.requires_grad_() for x in (q, k, u, gate)]
    state, rows = torch.zeros(2, 3, 6, 5, dtype=torch.double), []
    for i in range(length):
        fade = gate[:, :, i, None, None].exp()
        state = fade * state + k[:, :, i, :, None] * u[:, :, i, None]
        rows.append((q[:, :, i, None] @ state)[:, :, 0])
    expected = torch.stack(rows, dim=2)
    weights = torch.randn(expected.shape, generator=generator, dtype=torch.double)
    wanted = torch.autograd.grad((expected * weights).sum(), leaves)
    for chunk in (1, 4, 64):
        out = fading_sums(*leaves, chunk=chunk)
        torch.testing.assert_close(out, expected)
        found = torch.autograd.grad((out * weights).sum(), leaves)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)
