"""Absolute positions."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn


class Sinusoids(nn.Module):
    """Absolute positions without parameters: (L,) -> (L, D)."""

    most: ClassVar[float] = math.inf

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.width)  # (L, D)


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Absolute positions, for any length [Vaswani 2017, section 3.5]: positions (L,) -> (L, width) fp32."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions.float()[:, None] * torch.pow(10_000.0, -exponents)[None, :]  # (L, width/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]  # (L, width)
