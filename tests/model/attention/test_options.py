"""Options that make no sense are refused when the model is built, not at its first batch."""

from __future__ import annotations

from typing import Any

import pytest

from scaleformer.model.attention import MECHANISMS, build_attention, options_of

KERNELS = [name for name in MECHANISMS if "algorithm" in options_of(name)]


@pytest.mark.parametrize("name", KERNELS)
def test_algorithms_are_known(name: str) -> None:
    with pytest.raises(ValueError, match=r"model.attention.algorithm is 'nope': it must be one of auto, linear"):
        build_attention({"name": name, "algorithm": "nope"}, "decoder", 16, 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("scaleformer", {"feature_map": "nope"}, "model.attention.feature_map is 'nope': it must be one of elu1"),
        ("segment_recall", {"algorithm": "memory"}, "model.attention.algorithm is 'memory'"),
        ("softmax_gated", {"far_tokens": -1}, "model.attention.far_tokens is -1: it must be a float of at least 1"),
        ("scaleformer", {"horizon": 2.5}, "model.attention.horizon is 2.5: it must be an int of at least 1"),
        ("scaleformer", {"horizon": True}, "model.attention.horizon is true: it must be an int"),
        ("segment_recall", {"explore": "much"}, "model.attention.explore is 'much': it must be a float of at least 0"),
        ("scaleformer", {"symmetric": 1}, "model.attention.symmetric is 1: it must be a bool"),
        ("scaleformer", {"feature_map": 3}, "model.attention.feature_map is 3: it must be one of elu1"),
    ],
)
def test_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention({"name": name, **options}, "decoder", 16, 2)
