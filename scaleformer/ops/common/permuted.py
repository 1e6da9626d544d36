"""Rows in another order, with a backward pass that only gathers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Permuted(torch.autograd.Function):
    """Reordered rows. The order is a permutation: backward gathers by its inverse and needs no scatter-add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(inverse)
        ctx.shared = x.ndim == 4
        return _rows(x, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        back = _rows(grad, *ctx.saved_tensors)
        return back.sum(2) if ctx.shared else back, None, None


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """x (B, H, L, n) or (B, H, rounds, L, n), order (B, H, rounds, L) -> (B, H, rounds, L, n)"""
    texts = torch.arange(x.shape[:-2].numel(), device=x.device).view(*x.shape[:-2], *[1] * (6 - x.ndim))
    return x.flatten(0, -2)[order + texts * x.shape[-2]]  # (B, H, rounds, L, n)
