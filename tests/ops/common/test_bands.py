"""The band of scores within the horizon, added and read, against loops."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.common.bands import add_band, read_band


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (3, 0), (3, 3), (7, 7), (-2, 5), (-9, 12), (4, -3)])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (1, 9), (9, 1), (3, 5), (5, 3), (8, 8), (20, 20), (20, 6), (6, 20), (13, 17)]
)
def test_band(queries: int, keys: int, before: int, after: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, queries, keys, generator=generator, dtype=torch.float64)
    values = torch.randn(2, queries, before + 1 + after, generator=generator, dtype=torch.float64)
    expected, band = scores.clone(), torch.zeros_like(values)
    for i in range(queries):
        for t in range(before + 1 + after):
            if 0 <= (j := i + t - before) < keys:
                expected[:, i, j] += values[:, i, t]
                band[:, i, t] = scores[:, i, j]
    assert torch.equal(read_band(scores, before, after), band)
    add_band(scores, values, before, after)
    assert torch.equal(scores, expected)
