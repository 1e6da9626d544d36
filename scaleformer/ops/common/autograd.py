"""Shared by all autograd functions with a hand-written backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def own_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A hand-written backward pass. It always runs without autocast, since forward has already chosen the dtypes. It is
    once differentiable: a gradient of the gradient raises an error instead of being wrong."""

    @torch.autograd.function.once_differentiable
    @wraps(backward)
    def run(ctx: Any, *gradients: torch.Tensor) -> Any:
        with torch.autocast(gradients[0].device.type, enabled=False):
            return backward(ctx, *gradients)

    return run  # type: ignore[no-any-return]
