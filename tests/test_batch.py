"""The structure that passes from data to model."""

from __future__ import annotations

import torch

from tests.helpers import make_batch


def test_twice_repeats_the_batch() -> None:
    batch = make_batch([([3, 2], [4]), ([5], [2, 2])])
    twice = batch.twice()
    assert (len(twice), twice.ids) == (4, ("0", "1", "0", "1"))
    for name in ("source", "source_mask", "source_segments", "target_input", "target_output", "target_mask"):
        once = getattr(batch, name)
        assert all(torch.equal(half, once) for half in getattr(twice, name).split(2))
    assert torch.equal(twice.target_segments, batch.target_segments.repeat(2, 1))
