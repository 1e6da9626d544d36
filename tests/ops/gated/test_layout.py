"""One layout for different calls: each gets the plan of its own options, whichever came first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scaleformer.ops import SegmentLayout, segment_gated_attention
from tests.ops.segments.inputs import make_segment_inputs

X = make_segment_inputs(90, 90, reach=4, masked=True, horizon=3)
PARTS = X.query_segments, X.key_segments, X.tokens.key_mask
DEFAULT: dict[str, Any] = {"reach": 2, "relative": True, "causal": False, "far_tokens": 20, "dtype": torch.float64}


@pytest.mark.parametrize(
    "other", [{"reach": 4}, {"relative": False}, {"causal": True}, {"far_tokens": 3}, {"dtype": torch.float32}], ids=str
)
def test_a_layout_serves_calls_that_differ_in_an_option(other: dict[str, Any]) -> None:
    layout = SegmentLayout(*PARTS)
    for options in (DEFAULT, DEFAULT | other, DEFAULT):
        dtype, middle = options["dtype"], X.log_gate.shape[1] // 2
        gate = X.log_gate[:, middle - options["reach"] : middle + options["reach"] + 1]
        q, k, v, gate = (x.to(dtype) for x in (X.tokens.q, X.tokens.k, X.tokens.v, gate))
        rel = X.tokens.rel.to(dtype) if X.tokens.rel is not None and options["relative"] else None
        settings = {name: options[name] for name in ("causal", "far_tokens")} | {"algorithm": "linear"}
        parts = dict(zip(("query_segments", "key_segments", "key_mask"), PARTS, strict=True))
        expected = segment_gated_attention(q, k, v, rel, gate, **parts, **settings)
        assert torch.equal(segment_gated_attention(q, k, v, rel, gate, layout=layout, **settings), expected)
