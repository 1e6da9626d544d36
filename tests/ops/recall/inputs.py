"""Arguments of `segment_recall_attention`, and a call of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.recall.attention import segment_recall_attention
from tests.ops.segments.inputs import SegmentInputs, make_segment_inputs


@dataclass(frozen=True)
class Case:
    x: SegmentInputs
    salience: Tensor
    recency: Tensor

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.x.leaves, self.salience]


def make(queries: int, keys: int, kind: str = "short", *, near: int = 1, alike: bool = False, **options: Any) -> Case:
    """alike: few distinct saliences, so that many priorities are equal."""
    x = make_segment_inputs(queries, keys, kind, reach=near + 1, **options)
    batch, heads, length, _ = x.tokens.k.shape
    generator = torch.Generator().manual_seed(5)
    if alike:
        salience = torch.randint(0, 3, (batch, heads, length), generator=generator).double()
    else:
        salience = torch.randn(batch, heads, length, dtype=torch.float64, generator=generator)
    recency = torch.tensor([0.0, 0.25, 2.0, 0.5], dtype=torch.float64)[:heads]
    return Case(x, salience.requires_grad_(), recency)


def call(case: Case, function: Callable[..., Tensor] = segment_recall_attention, **options: Any) -> Tensor:
    x = case.x
    segments = x.query_segments, x.key_segments
    options = {"key_mask": x.tokens.key_mask, **options}
    q, k, v, rel = x.tokens.q, x.tokens.k, x.tokens.v, x.tokens.rel
    return function(q, k, v, rel, x.log_gate, case.salience, case.recency, *segments, **options)
