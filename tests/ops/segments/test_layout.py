"""A layout derives each plan once, and has a mask whether or not one was given."""

from __future__ import annotations

import torch

from scaleformer.ops.segments.layout import SegmentLayout

SEGMENTS = torch.tensor([[0, 0, 1, 1]])


def test_what_is_derived_is_made_once_for_each_key() -> None:
    layout, made = SegmentLayout(SEGMENTS, SEGMENTS), []

    def derive(key: str) -> str:
        return layout.derived(key, lambda: made.append(key) or key)

    assert [derive(key) for key in ("a", "b", "a", "b")] == ["a", "b", "a", "b"]
    assert made == ["a", "b"]
    with torch.inference_mode():
        derive("a")
    assert made == ["a", "b", "a"]


def test_masks() -> None:
    """`mask` is always there; `real` is None where it is known to hide nothing."""
    every, some = torch.ones(1, 4, dtype=torch.bool), torch.tensor([[True, True, True, False]])
    assert SegmentLayout(SEGMENTS, SEGMENTS).mask.equal(every)
    assert SegmentLayout(SEGMENTS, SEGMENTS, some).mask is some
    assert SegmentLayout(SEGMENTS, SEGMENTS, some).real() is some
    assert SegmentLayout(SEGMENTS, SEGMENTS, every).real() is None
    assert SegmentLayout(SEGMENTS, SEGMENTS).real() is None


def test_pads_stand_in_segments_that_never_fall() -> None:
    noisy = torch.tensor([[0, 0, 1, -7]])
    queries, keys = SegmentLayout(noisy, noisy, torch.tensor([[True, True, True, False]])).clean(causal=True)
    assert queries.equal(keys)
    assert (keys.diff() >= 0).all()
    assert keys[:, :3].equal(noisy[:, :3])


def test_where_segments_end() -> None:
    """A row of three segments, the last one of a token, and two of one that ends before its pads."""
    segments = torch.tensor([[0, 0, 2, 2, 3], [5, 5, 5, 6, 7]])
    mask = torch.tensor([[True] * 5, [True, True, True, True, False]])
    last, number, place, real = SegmentLayout(segments, segments, mask).ends()
    assert last.int().tolist() == [[0, 1, 0, 1, 1], [0, 0, 1, 1, 0]]
    assert number.tolist() == [[0, 0, 1, 1, 2], [0, 0, 0, 1, 2]]
    assert place.tolist() == [[1, 3, 4], [2, 3, 0]]
    assert real.tolist() == [[True] * 3, [True, True, False]]
    assert SegmentLayout(segments, segments, torch.zeros_like(mask)).ends().real.tolist() == [[False], [False]]
