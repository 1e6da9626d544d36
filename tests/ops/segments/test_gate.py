"""The gradient of a gate, in the form of each device."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.segments import gate


@pytest.mark.parametrize("shape", [(3, 40), (2, 5, 40), (2, 3, 4, 5)], ids=["places", "pairs", "tiles"])
@pytest.mark.parametrize("whole", [frozenset({"cpu"}), frozenset()], ids=["cpu", "gpu"])
def test_the_gradient_sums_over_the_places_of_a_column(
    shape: tuple[int, ...], whole: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "WHOLE_ON", whole)
    generator = torch.Generator().manual_seed(0)
    gates = torch.randn(4, 9, generator=generator, dtype=torch.float64, requires_grad=True)
    column = torch.randint(0, 9, shape, generator=generator)
    grad = torch.randn(shape[0], 4, *shape[1:], generator=generator, dtype=torch.float64)
    (found,) = torch.autograd.grad(gate.look_up(gates, column), gates, grad)
    heads = grad.transpose(0, 1)  # (H, B, ...)
    slow = torch.stack([heads[:, column == x].sum(1) for x in range(9)], dim=1)  # (H, 2G+1)
    torch.testing.assert_close(found, slow)
