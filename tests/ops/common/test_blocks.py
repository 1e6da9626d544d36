"""Cutting, windows, diagonals and running sums against plain loops."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.common.blocks import (
    Block,
    add_windows,
    blocks_of,
    diagonals,
    rows_of,
    running,
    scan_with_carry,
    store_rows,
    u_rows,
    u_windows,
)
from scaleformer.ops.common.relative_positions import relative_scores, skew


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)


def test_blocks_cover_the_sequence_once() -> None:
    blocks = blocks_of(1000, 7, 4096, torch.device("cpu"))
    assert [b.start for b in blocks] == [0, *(b.start + 7 * b.chunks for b in blocks[:-1])]
    assert 1000 <= blocks[-1].start + 7 * blocks[-1].chunks < 1007


@pytest.mark.parametrize("start", [-5, -2, 0, 3, 9, 20])
def test_rows(start: int) -> None:
    x = numbered(2, 3, 10, 4)
    wide = torch.nn.functional.pad(x, (0, 0, 30, 30))
    expected = wide[:, :, 30 + start : 36 + start]
    rows = rows_of(x, start, 6, torch.float64)
    assert (rows == expected.flatten(0, 1)).all()
    if start < 0:
        return
    target = torch.zeros_like(x)
    store_rows(target, rows, start)
    assert (target[:, :, start : start + 6] == x[:, :, start : start + 6]).all()
    assert target.count_nonzero() == x[:, :, start : start + 6].numel()


def test_u_windows() -> None:
    v = numbered(2, 1, 7, 3)
    key_mask = torch.tensor([[True] * 7, [True, False] + [True] * 5])
    u = u_windows(v, key_mask, Block(0, 2), 4, 2, 1, 0, torch.float32)  # (2, 1, 2, 7, 4)
    for m in range(2):
        for b in range(2):
            for w in range(7):
                position = 4 * m + w - 2
                real = 0 <= position < 7 and bool(key_mask[b, position])
                expected = torch.cat([v[b, 0, position], torch.ones(1)]) if real else torch.zeros(4)
                assert (u[b, 0, m, w] == expected).all()


def test_u_by_rows() -> None:
    v = numbered(2, 3, 7, 3)
    key_mask = torch.tensor([[True] * 7, [True, False] + [True] * 5])
    rows = u_rows(v, key_mask, 0, 8, torch.float32)  # (6, 8, 4)
    assert (rows.view(2, 3, 1, 8, 4) == u_windows(v, key_mask, Block(0, 1), 8, 0, 0, 0, torch.float32)).all()
    assert (u_rows(v, None, 0, 7, torch.float32)[..., -1] == 1).all()


@pytest.mark.parametrize("width", [2, 4, 5, 9])
def test_add_windows(width: int) -> None:
    parts = numbered(2, 3, width, 2)
    total = torch.zeros(2, 8 + width, 2)
    add_windows(total, parts, 4)
    expected = torch.zeros_like(total)
    for m in range(3):
        expected[:, 4 * m : 4 * m + width] += parts[:, m]
    assert (total == expected).all()


def test_diagonals_and_skew() -> None:
    matrix, given = numbered(2, 3, 8), numbered(2, 3, 4)
    expected = torch.stack([matrix[:, i, 1 + i : 5 + i] for i in range(3)], dim=1)
    assert (diagonals(matrix, 4, first=1) == expected).all()
    skewed = skew(given, 8).contiguous()
    assert (diagonals(skewed, 4) == given).all()
    assert skewed.count_nonzero() == given.numel()


@pytest.mark.parametrize("first", [0, 3, -9])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (6, 1), (5, 7)])
def test_relative_scores(queries: int, keys: int, first: int) -> None:
    by_distance = numbered(queries, 5)
    spread = relative_scores(by_distance, keys, first)
    for i in range(queries):
        for j in range(keys):
            assert spread[i, j] == by_distance[i, min(max(j - i - first, -2), 2) + 2]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_sums_before_and_after(count: int, reverse: bool) -> None:
    parts, carry = numbered(2, count, 3), torch.full((2, 3), 100.0)
    results = [running(parts.clone(), carry, reverse), scan_with_carry(parts, carry, reverse)]
    for i in range(count - 1, -1, -1) if reverse else range(count):
        assert all((sums[:, i] == carry).all() for sums, _ in results)
        carry = carry + parts[:, i]
    assert all((total == carry).all() for _, total in results)
