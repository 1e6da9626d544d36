"""What several mechanisms share of their constructors: checks of their options, and how parameters begin."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn


def at_least(least: int, **options: float) -> None:
    """Raise ValueError for an option that is less, by its name in the configuration."""
    for name, value in options.items():
        if value < least:
            raise ValueError(f"model.attention.{name} is {value}: it must be at least {least}")


def one_of(choices: Collection[str], **options: str) -> None:
    """Raise ValueError for an option that is none of the choices, by its name in the configuration."""
    for name, value in options.items():
        if value not in choices:
            raise ValueError(f"model.attention.{name} is {value!r}: choose one of {', '.join(choices)}")


def relative_embedding(heads: int, horizon: int, width: int) -> nn.Parameter:
    """Embeddings of the distances -R to R that begin near zero: (H, 2R+1, d)."""
    return nn.Parameter(0.1 * torch.randn(heads, 2 * horizon + 1, width))


def log_gate(heads: int, reach: int, slope: float) -> nn.Parameter:
    """Gates of the distances of -G to G segments: (H, 2G+1).

    They begin as -slope_h * distance, with slope_h = slope * (0.5, 1, 2, 4, and again) over the heads.
    """
    distance = torch.arange(-reach, reach + 1).abs().float()  # (2G+1,)
    slopes = slope * 0.5 * 2.0 ** (torch.arange(heads) % 4)  # (H,)
    return nn.Parameter(-slopes[:, None] * distance)  # (H, 2G+1)
