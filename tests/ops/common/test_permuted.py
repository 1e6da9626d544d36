"""Rows in another order: against a loop, and gradients against finite differences."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.common.permuted import Permuted

B, H, ROUNDS, LENGTH, WIDTH = 2, 2, 3, 5, 4


@pytest.mark.parametrize("rounds", [(), (ROUNDS,)], ids=["shared by the rounds", "of each round"])
def test_each_round_gathers_its_own_order(rounds: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(B, H, *rounds, LENGTH, WIDTH, dtype=torch.double, generator=generator, requires_grad=True)
    order = torch.rand(B, H, ROUNDS, LENGTH, generator=generator).argsort(-1)
    out = Permuted.apply(x, order, order.argsort(-1))
    for b, h, r, i in torch.cartesian_prod(*(torch.arange(n) for n in order.shape)).tolist():
        rows = x[b, h, r] if rounds else x[b, h]
        assert torch.equal(out[b, h, r, i], rows[order[b, h, r, i]])
    assert torch.autograd.gradcheck(lambda x: Permuted.apply(x, order, order.argsort(-1)), x)
