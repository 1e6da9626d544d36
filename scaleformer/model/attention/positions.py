"""Absolute positions."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn


class Sinusoids(nn.Module):
    """Absolute positions without parameters: (..., L) -> (..., L, D), of a form of `FORMS`."""

    most: ClassVar[float] = math.inf

    def __init__(self, width: int, form: str = "auto") -> None:
        super().__init__()
        self.width = width
        self.form = form

    def forward(self, positions: Tensor) -> Tensor:
        return FORMS[self.form](positions, self.width)  # (..., L, D)


class LearnedPositions(nn.Module):
    """An embedding for each of the first positions: (L,) -> (L, D), on the scale of token embeddings. Raises ValueError
    for a position without an embedding."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(count, width))

    @property
    def most(self) -> int:
        return len(self.embedding)

    def forward(self, positions: Tensor) -> Tensor:
        last = int(positions.max()) + 1
        if last > self.most:
            raise ValueError(f"a text of {last} tokens is longer than the {self.most} learned positions: shorten it, "
                             "or train with a larger model.attention.max_positions")  # fmt: skip
        return self.embedding[positions]  # (L, D)


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Absolute positions, for any length [Vaswani 2017, section 3.5]: positions (..., L) -> (..., L, width) fp32."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions.float()[..., None] * torch.pow(10_000.0, -exponents)  # (..., L, width/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :width]  # (..., L, width)


def marian_sinusoids(positions: Tensor, width: int) -> Tensor:
    """The same with all sines before all cosines, as in Marian."""
    table = sinusoids(positions, width)
    return torch.cat([table[..., 0::2], table[..., 1::2]], dim=-1)  # (..., L, width)


def m2m100_sinusoids(positions: Tensor, width: int) -> Tensor:
    """Those of tensor2tensor, from position 2 on, as in M2M100; width is even."""
    steps = torch.arange(width // 2, device=positions.device).float()
    angles = (positions.float() + 2)[..., None] * torch.exp(steps * -(math.log(10_000) / (width // 2 - 1)))
    return torch.cat([angles.sin(), angles.cos()], dim=-1)  # (..., L, width)


#: by `model.sinusoids`; "auto" for attentions that are blind to order, "segments" from the start of each segment
FORMS = {"auto": sinusoids, "segments": sinusoids, "marian": marian_sinusoids, "m2m100": m2m100_sinusoids}
