"""Shared parts of the mechanisms' constructors: types of options, and initial values of parameters."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import nn

from scaleformer.ops.common.checks import ALGORITHMS
from scaleformer.ops.common.feature_maps import FEATURE_MAPS
from scaleformer.system.schema import OneOf

Algorithm = Annotated[str, OneOf(ALGORITHMS)]
FeatureMap = Annotated[str, OneOf(FEATURE_MAPS)]


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
