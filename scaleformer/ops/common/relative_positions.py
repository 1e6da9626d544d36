"""Clipped relative positions ([Shaw 2018]) in linear time: a band near the diagonal and constants beyond it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def horizon_of(rel: Tensor) -> int:
    """The horizon R of a table of 2R+1 rows; row R+t stands for the distance t = key position - query position."""
    return (rel.shape[-2] - 1) // 2


def causal_tables(frel: Tensor) -> tuple[Tensor, Tensor]:
    """b (..., 1, d) and phi(rel_{t+R}) - b for t = -R+1 .. 0 (..., R, d), from frel = phi(rel); b = frel_0."""
    far = frel[..., :1, :]
    return far, frel[..., 1 : horizon_of(frel) + 1, :] - far


def bidirectional_table(frel: Tensor) -> Tensor:
    """frel_{t+R} - (b if t <= 0 else a) for t = -R+1 .. R-1, then b = frel_0, then a = frel_2R: (..., 2R+1, d)."""
    horizon = horizon_of(frel)
    before, after = frel[..., :1, :], frel[..., -1:, :]
    past, future = frel[..., 1 : horizon + 1, :] - before, frel[..., horizon + 1 : -1, :] - after
    return torch.cat([past, future, before, after], dim=-2)  # (..., 2R+1, d)


def score_table(rel: Tensor, causal: bool) -> Tensor:
    """The rows of rel (..., 2R+1, d), minus b = rel_0, that softmax scores need: (..., R, d) for t = -R+1 .. 0 if
    causal; else (..., 2R, d) for t = -R+1 .. R-1, then a - b with a = rel_2R.

    A softmax ignores a term common to all scores of a query. So b is subtracted everywhere: the keys beyond the horizon
    before the query get no term, all others their difference from b, and the keys after the horizon a - b.
    """
    if causal:
        return causal_tables(rel)[1]
    near, before, after = bidirectional_table(rel).split([rel.shape[-2] - 2, 1, 1], dim=-2)
    return torch.cat([near, after - before], dim=-2)


def skew(diagonals: Tensor, width: int) -> Tensor:
    """Shift row i of (..., C, M) by i places to the right in a matrix (..., C, width), zeros elsewhere.

    Padding every row to width + 1 and reading the result in rows of `width` shifts each row one place further than the
    row before, without an index or a gather. `width` must be at least C + M - 1.
    """
    rows, given = diagonals.shape[-2:]
    assert width >= rows + given - 1
    padded = functional.pad(diagonals, (0, width + 1 - given))  # (..., C, width + 1)
    return padded.flatten(-2)[..., : rows * width].unflatten(-1, (rows, width))  # (..., C, width)


def relative_scores(by_distance: Tensor, keys: int, first: int = 0) -> Tensor:
    """Scores (..., L, S) from scores by distance (..., L, 2R+1): out[i, j] = by_distance[i, clip(j - i, -R, R) + R].

    Query i is at position `first` + i. Quadratic: for the algorithms that compute all scores.
    """
    queries = by_distance.shape[-2]
    horizon = (by_distance.shape[-1] - 1) // 2
    total, lowest = queries + keys - 1, 1 - queries - first  # number of distances, and the lowest
    before = min(max(-horizon - lowest, 0), total)  # number of distances before the horizon
    after = min(max(lowest + total - 1 - horizon, 0), total)  # number of distances after it
    start = max(lowest + horizon, 0)  # column of the first distance within
    strip = torch.cat(
        [
            by_distance[..., :1].expand(*by_distance.shape[:-1], before),
            by_distance[..., start : start + total - before - after],
            by_distance[..., -1:].expand(*by_distance.shape[:-1], after),
        ],
        dim=-1,
    )  # (..., L, L + S - 1)
    if queries == 1:
        return strip
    flat = strip.flatten(-2)[..., queries - 1 : queries - 1 + queries * (total - 1)]  # (..., L * (L + S - 2))
    return flat.unflatten(-1, (queries, total - 1))[..., :keys]  # (..., L, S)
