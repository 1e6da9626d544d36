"""Gradients of a whole step: their norm, their scaling, and the names of the largest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def total_norm(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """Euclidean norm of all gradients as one vector: a scalar in fp32, NaN or infinite where one of them is.

    For sharded gradients this is the norm over all processes, and all of them must call it.
    """
    norm = torch.nn.utils.get_total_norm(gradients) if gradients else torch.zeros((), device=device)
    if isinstance(norm, DTensor):
        return norm.full_tensor().float()
    return norm.float()


def scale_(gradients: Sequence[Tensor], factor: float) -> None:
    """Multiply all gradients by a number, in place."""
    if factor != 1 and gradients:
        torch._foreach_mul_([g.to_local() if isinstance(g, DTensor) else g for g in gradients], factor)


def clip_factor(norm: float, limit: float | None) -> float:
    """The factor, at most 1, that reduces a gradient norm to `limit`; None or 0: no limit.

    limit / (norm + 1e-6), as `torch.nn.utils.clip_grad_norm_`.
    """
    return min(1.0, limit / (norm + 1e-6)) if limit else 1.0


def largest_gradients(parameters: Iterable[tuple[str, nn.Parameter]], scale: float = 1.0, count: int = 3) -> str:
    """Text with the largest gradient norms, times `scale`, by parameter; non-finite ones come first."""
    norms = [(name, scale * float(p.grad.detach().float().norm())) for name, p in parameters if p.grad is not None]
    norms.sort(key=lambda pair: -pair[1] if math.isfinite(pair[1]) else -math.inf)
    return ", ".join(f"{name} {norm:.3g}" for name, norm in norms[:count]) or "none"
