"""The profile of a step. The times themselves do not matter here."""

from __future__ import annotations

import pytest

from scaleformer.benchmarks.models import Sizes
from scaleformer.benchmarks.page import profile_tables
from scaleformer.benchmarks.step_profile import BATCHED, BETWEEN, COPIES, KINDS, OTHER, WEIGHTS, kind_of, profile_steps

SIZES = Sizes(layers=1, width=8, feedforward=12, heads=2, vocabulary=30)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::mm", WEIGHTS),
        ("aten::addmm", WEIGHTS),
        ("aten::mkldnn_convolution", WEIGHTS),
        ("aten::bmm", BATCHED),
        ("aten::baddbmm_", BATCHED),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", BATCHED),
        ("aten::copy_", COPIES),
        ("aten::index_select", COPIES),
        ("aten::cat", COPIES),
        ("aten::exp2_", OTHER),
        ("aten::sum", OTHER),
    ],
)
def test_operators_have_kinds(operator: str, kind: str) -> None:
    assert kind_of(operator) == kind


@pytest.mark.parametrize("system", ["segment_recall", "softmax"])
def test_each_kind_takes_part_of_the_whole(system: str) -> None:
    profile = profile_steps(system, SIZES, ["float32", "bfloat16"], 40, 80, 5, 1)  # the median is the one step
    assert profile.documents == 2
    for seconds in profile.seconds.values():
        assert tuple(seconds) == KINDS
        assert all(seconds[kind] > 0 for kind in KINDS)  # between operators too: none counts twice


def test_tables_show_both_precisions_and_their_ratio() -> None:
    seconds = {"float32": {WEIGHTS: 0.2, BETWEEN: 0.0}, "bfloat16": {WEIGHTS: 0.1, BETWEEN: 0.1}}
    profile = {"system": "ours", "length": 2048, "documents": 1, "seconds": seconds}
    (table,) = profile_tables({"profiles": [profile]})
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert cells[0] == ["ours, 1 x 2,048 tokens", "float32, ms", "bfloat16, ms", "times as fast"]
    assert cells[2:] == [[WEIGHTS, "200", "100", "2.00"], [BETWEEN, "0", "100", ""]]
    profile["seconds"] = {"float32": seconds["float32"]}
    (table,) = profile_tables({"profiles": [profile]})
    assert table.splitlines()[2].strip("| ").endswith("200")
