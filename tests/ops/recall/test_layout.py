"""One layout for different calls: each gets the plan of its own options, whichever came first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops import SegmentLayout, segment_recall_attention
from tests.ops.recall.inputs import make

SHARED = make(200, 200, masked=True).x
PARTS = SHARED.query_segments, SHARED.key_segments, SHARED.tokens.key_mask


def attend(
    layout: SegmentLayout | None,
    *,
    near: int = 0,
    horizon: int | None = 3,
    causal: bool = False,
    kept: int = 4,
    dtype: torch.dtype = torch.float64,
    algorithm: str,
) -> Tensor:
    """By a layout, or by its parts."""
    case = make(200, 200, near=near, horizon=horizon)
    tokens = case.x.tokens
    rel = None if tokens.rel is None else tokens.rel.to(dtype)
    q, k, v, gate, salience, recency = (
        x.to(dtype) for x in (tokens.q, tokens.k, tokens.v, case.x.log_gate, case.salience, case.recency)
    )
    given: dict[str, Any] = {"layout": layout}
    if layout is None:
        given = dict(zip(("query_segments", "key_segments", "key_mask"), PARTS, strict=True))
    options: dict[str, Any] = {"kept": kept, "causal": causal, "algorithm": algorithm}
    return segment_recall_attention(q, k, v, rel, gate, salience, recency, **given, **options)


@pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
@pytest.mark.parametrize(
    "other",
    [
        {"near": 3},
        {"causal": True, "kept": 2},  # as many on a side as 4 in both directions
        {"kept": 100},
        {"horizon": 40},
        {"horizon": None},
        {"dtype": torch.float32},
    ],
    ids=str,
)
def test_a_layout_serves_calls_that_differ_in_an_option(other: dict[str, Any], algorithm: str) -> None:
    layout = SegmentLayout(*PARTS)
    for options in ({}, other, {}):
        expected = attend(None, algorithm=algorithm, **options)
        assert torch.equal(attend(layout, algorithm=algorithm, **options), expected)
