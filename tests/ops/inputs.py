"""Random arguments for attention, small and in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    q: Tensor
    k: Tensor
    v: Tensor
    rel: Tensor | None
    key_mask: Tensor | None

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors that have a gradient."""
        return [x for x in (self.q, self.k, self.v, self.rel) if x is not None]

    def detached(self) -> Inputs:
        rel = None if self.rel is None else self.rel.detach()
        return replace(self, q=self.q.detach(), k=self.k.detach(), v=self.v.detach(), rel=rel)


def make_inputs(
    queries: int,
    keys: int,
    *,
    horizon: int | None = None,
    per_head: bool = False,
    masked: bool = False,
    batch: int = 2,
    heads: int = 2,
    d: int = 4,
    e: int = 3,
    seed: int = 0,
) -> Inputs:
    """Arguments that ask for gradients. The mask of the first row has holes, that of the last no key at all."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    key_mask = None
    if masked:
        key_mask = torch.rand(batch, keys, generator=generator) > 0.3
        key_mask[-1] = False
    return Inputs(
        q=normal(batch, heads, queries, d),
        k=normal(batch, heads, keys, d),
        v=normal(batch, heads, keys, e),
        rel=None if horizon is None else normal(*([heads] if per_head else []), 2 * horizon + 1, d),
        key_mask=key_mask,
    )


def gradients(out: Tensor, leaves: list[Tensor], unused: bool = False) -> tuple[Tensor, ...]:
    """The gradients of `out` weighted at random, by the same weights for the same shape, whatever its precision.
    unused: whether leaves may be without effect, whose gradient is zero."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    return torch.autograd.grad(out, leaves, weights.to(out.dtype), allow_unused=unused, materialize_grads=unused)
