"""Shared parts of the mechanisms' constructors: checks of options, and initial values of parameters."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn


def at_least(least: int, **options: float) -> None:
    """Raise ValueError for an option below `least`, with its name in the configuration."""
    for name, value in options.items():
        if value < least:
            raise ValueError(f"model.attention.{name} is {value}: it must be at least {least}")


def between(least: float, most: float, **options: float) -> None:
    """Raise ValueError for an option outside [least, most], with its name in the configuration."""
    for name, value in options.items():
        if not least <= value <= most:
            raise ValueError(f"model.attention.{name} is {value}: it must be between {least} and {most}")


def one_of(choices: Collection[str], **options: str) -> None:
    """Raise ValueError for an option that is not among the choices, with its name in the configuration."""
    for name, value in options.items():
        if value not in choices:
            raise ValueError(f"model.attention.{name} is {value!r}: choose one of {', '.join(choices)}")


def relative_embedding(heads: int, horizon: int, width: int) -> nn.Parameter:
    """Embeddings of the distances -R to R, initialised near zero: (H, 2R+1, d)."""
    return nn.Parameter(0.1 * torch.randn(heads, 2 * horizon + 1, width))


def log_gate(heads: int, reach: int, slope: float) -> nn.Parameter:
    """Log gates of the distances -G to G in segments: (H, 2G+1).

    Initially -slope_h * distance, with slope_h = slope * (0.5, 1, 2, 4, repeated) over the heads.
    """
    distance = torch.arange(-reach, reach + 1).abs().float()  # (2G+1,)
    slopes = slope * 0.5 * 2.0 ** (torch.arange(heads) % 4)  # (H,)
    return nn.Parameter(-slopes[:, None] * distance)  # (H, 2G+1)
