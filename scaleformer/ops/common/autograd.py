"""What all autograd functions with a backward pass of their own share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def own_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass written by hand: outside of autocast, wherever the caller stands, since it multiplies what
    forward has made in types of its own; and once, so that a gradient of the gradient is refused and not wrong."""

    @torch.autograd.function.once_differentiable
    @wraps(backward)
    def run(ctx: Any, *gradients: torch.Tensor) -> Any:
        with torch.autocast(gradients[0].device.type, enabled=False):
            return backward(ctx, *gradients)

    return run  # type: ignore[no-any-return]
