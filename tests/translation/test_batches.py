"""Documents and segments, put together by their lengths."""

from __future__ import annotations

import pytest

from scaleformer.translation.batches import by_source, runs, token_budget


def test_batches_of_a_budget():
    assert list(token_budget([3, 9, 4, 2], 9)) == [[1], [2, 0], [3]]
    assert list(token_budget([20, 1], 9)) == [[0], [1]]
    assert list(token_budget([], 9)) == []


def test_runs_keep_the_order_and_hold_one_at_least() -> None:
    assert list(runs(zip("abcde", [3, 2, 9, 1, 4], strict=True), 5)) == [["a", "b"], ["c"], ["d", "e"]]
    assert list(runs([], 5)) == []


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
