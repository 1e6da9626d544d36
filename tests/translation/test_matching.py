"""Which source segments a translation translates, and which of them the length limit cut."""

from __future__ import annotations

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.translation.matching import by_source, cut_segments
from scaleformer.vocabulary import EOS, SEP, SEP0, SEP2
from tests.search import SOURCES, FakeModel, batch, random_logits


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
    assert cut_segments(source, written, told, config) == cut


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_what_the_search_calls_cut_has_a_segment_at_its_limit(strategy: str) -> None:
    settings = {"n_best": 4} if strategy == "sample" else {"beam_size": 3} if strategy == "beam" else {}
    config = DecodingConfig(strategy=strategy, max_length_ratio=1.0, max_length_offset=4, **settings)
    found = decode(FakeModel(random_logits), *batch(*SOURCES), config)
    pairs = [(source, h) for source, hypotheses in zip(SOURCES, found, strict=True) for h in hypotheses]
    assert {h.finished for _, h in pairs} == {True, False}
    for source, h in pairs:
        cut = cut_segments(source, h.tokens, {}, config)
        assert h.finished or cut
