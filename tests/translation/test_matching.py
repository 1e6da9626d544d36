"""Which source segments a translation translates, and which of them the length limit cut."""

from __future__ import annotations

import pytest

from scaleformer.translation.config import DecodingConfig
from scaleformer.translation.matching import by_source, cut_segments
from scaleformer.vocabulary import EOS, SEP, SEP0, SEP2


@pytest.mark.parametrize(
    ("written", "expected", "shared"),
    [
        ([("a", 1), ("b", 1)], ["a", "b"], []),
        ([("a", 0), ("b", 1), ("c", 1)], ["a b", "c"], []),
        ([("a", 2), ("b", 3)], ["a", "", "b", "", ""], [1, 3, 4]),
        ([("a", 1), ("b", 0)], ["a", "b"], []),
        ([], [], []),
    ],
)
def test_segments_of_a_translation_are_those_of_its_source(written, expected, shared):
    assert by_source(written) == (expected, shared)


@pytest.mark.parametrize(
    ("written", "told", "cut"),
    [
        ([10, 10, SEP, 10, 10, SEP, 10, 10, SEP], {}, (0, 2)),  # limits of 2, 3 and 2 tokens
        ([10, SEP0, SEP, 10, SEP, 10, SEP], {}, (0,)),  # what ends a target segment counts
        ([10, SEP, 10, 10, 10, SEP2], {}, ()),  # a separator that the model chose
        ([10, SEP, 10, 10], {}, (1, 2)),  # the document ended first
        ([10, 10, 10, SEP, 10, SEP, 10, SEP], {0: [10, 10, 10, SEP]}, ()),  # told whole
        ([10, 10, 10, SEP, 10, SEP, 10, SEP], {0: [10, 10, 10]}, (0,)),  # told its beginning, which it ends with
        ([10, 10, SEP, 10, SEP, 10, SEP], {0: [10, 10, 10]}, ()),
    ],
)
def test_segments_at_their_limit_are_cut(written, told, cut):
    config = DecodingConfig(max_length_ratio=1.0, max_length_offset=1)
    source = [20, SEP, 20, 20, SEP, 20, SEP, EOS]
    assert cut_segments(source, written, told, config, counted=True) == cut
