"""What the encoder-decoder hands from call to call. B batch, K beams, S source length, D model width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from scaleformer.model.layers import LayerState

Before = tuple[Sequence[Tensor], Tensor]  # what `Transformer.read_target` takes from an earlier call


class Encoded(NamedTuple):
    """The encoded source: states (B, S, D), mask (B, S) bool, segments (B, S) long."""

    states: Tensor
    mask: Tensor
    segments: Tensor


class DecoderState(NamedTuple):
    """Everything a step needs from earlier steps, for B documents times K beams; starts (B*K,) are the positions at
    which their segments began, with `model.separate_segments`; documents (B*K,) their numbers in the batch, where
    caches are mixed in."""

    position: int
    layers: list[LayerState]
    starts: Tensor | None = None
    documents: Tensor | None = None
