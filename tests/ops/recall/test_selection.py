"""The selection of kept tokens, against sorting each prefix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from scaleformer.ops.recall.selection import NONE, RankedKeys, ends_of, running_tops, scan_tops


@pytest.mark.parametrize("tops", [running_tops, scan_tops])
@pytest.mark.parametrize(("blocks", "size", "count"), [(1, 4, 3), (2, 4, 4), (7, 4, 9), (8, 3, 1), (13, 2, 40)])
def test_highest_of_the_blocks_before(
    tops: Callable[[Tensor, int], Tensor], blocks: int, size: int, count: int
) -> None:
    torch.manual_seed(blocks)
    rank = torch.randn(2, 3, blocks * size).argsort(-1).float()
    rank[1, :, 3:] = NONE
    found = tops(rank.unflatten(-1, (blocks, size)), count)
    assert found.shape == (2, 3, blocks + 1, count)
    for end in range(blocks + 1):
        wanted = torch.full((2, 3, count), NONE)
        top = rank[..., : end * size].sort(-1, descending=True).values[..., :count]
        wanted[..., : top.shape[-1]] = top
        torch.testing.assert_close(found[:, :, end].sort(-1, descending=True).values, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("after", [False, True])
def test_kept_of_any_number_of_keys(after: bool) -> None:
    torch.manual_seed(0)
    length, count = 70, 5
    priority = torch.randint(0, 9, (2, 2, length)).float()  # many equal
    real = torch.arange(length) < torch.tensor([[length], [41]])
    keys = RankedKeys(priority, real, count, after)
    ends = torch.tensor([[0, 1, 4, 31, 32, 33, 64, 70]]).expand(2, -1)
    ranks = keys.among(ends_of(ends, length))  # (2, 2, 8, 5)
    positions = keys.positions(ranks)
    least = keys.least(ends)  # (2, 2, 8)
    for row in range(2):
        for head in range(2):
            for column, end in enumerate(ends[row].tolist()):
                standing = list(range(length - end, length) if after else range(end))
                standing = [j for j in standing if real[row, j]]
                nearer = sorted(standing, reverse=not after)  # to the query: the end where counting stops
                best = sorted(nearer, key=lambda j: -priority[row, head, j])[:count]
                found = positions[row, head, column][ranks[row, head, column] != NONE]
                assert found.tolist() == best
                rank = keys.rank[row, head]
                assert sorted(j for j in standing if rank[j] >= least[row, head, column]) == sorted(best)
