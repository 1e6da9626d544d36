"""Random arguments for attention that knows segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.ops.inputs import Inputs, make_inputs

SEGMENTS = ("one-token", "single", "short", "long", "with-gaps")


@dataclass(frozen=True)
class SegmentInputs:
    tokens: Inputs
    log_gate: Tensor
    query_segments: Tensor
    key_segments: Tensor

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.tokens.leaves, self.log_gate]

    @property
    def arguments(self) -> tuple[Tensor | None, ...]:
        x = self.tokens
        return x.q, x.k, x.v, x.rel, self.log_gate, self.query_segments, self.key_segments


def make_segments(kind: str, batch: int, length: int, seed: int = 0) -> Tensor:
    """Segment numbers (batch, length) that never decrease, each row with its own borders."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "one-token":
        return torch.arange(length).expand(batch, -1).contiguous()
    chance = {"single": 0.0, "short": 0.4, "long": 0.08, "with-gaps": 0.4}[kind]
    borders = torch.rand(batch, length, generator=generator) < chance
    steps = torch.randint(1, 9, (batch, length), generator=generator) if kind == "with-gaps" else 1
    return (borders * steps).cumsum(1)


def make_segment_inputs(
    queries: int, keys: int, kind: str = "short", *, reach: int = 2, causal: bool = False, seed: int = 0, **options: Any
) -> SegmentInputs:
    """Arguments that ask for gradients; causal: query i and key i in one segment."""
    tokens = make_inputs(queries, keys, seed=seed, **options)
    batch, heads = tokens.q.shape[:2]
    log_gate = torch.randn(
        heads, 2 * reach + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_()
    longest = max(queries, keys)
    query_segments = make_segments(kind, batch, longest, seed)
    key_segments = query_segments if causal else make_segments(kind, batch, longest, seed + 1)
    return SegmentInputs(tokens, log_gate, query_segments[:, :queries], key_segments[:, :keys])
