"""Documents and segments, put together by their lengths."""

from __future__ import annotations

from scaleformer.translation.batches import runs, token_budget


def test_batches_of_a_budget():
    assert list(token_budget({0: 3, 1: 9, 5: 4, 7: 2}, 9)) == [[1], [5, 0], [7]]
    assert list(token_budget({0: 20, 1: 1}, 9)) == [[0], [1]]
    assert list(token_budget({}, 9)) == []


def test_runs_keep_the_order_and_hold_one_at_least() -> None:
    assert list(runs(zip("abcde", [3, 2, 9, 1, 4], strict=True), 5)) == [["a", "b"], ["c"], ["d", "e"]]
    assert list(runs([], 5)) == []
