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
