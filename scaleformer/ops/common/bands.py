"""The scores of all pairs within a horizon: a band along the diagonal, for the most part as a view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from scaleformer.ops.common.blocks import diagonals


class _Edge(NamedTuple):
    """Rows first .. last of scores that lack keys at some distances. A matrix with room for all distances holds them;
    its columns left .. right are the keys from `key` on."""

    first: int
    last: int
    left: int
    right: int
    key: int


def _inner(scores: Tensor, before: int, after: int) -> tuple[slice, Tensor]:
    """The rows of contiguous scores (X, L, S) that have keys at all distances from -before to after, and the view
    (X, rows, before + 1 + after) of their scores at these distances, the diagonals."""
    items, queries, keys = scores.shape
    first = min(max(before, 0), queries)
    rows = slice(first, max(first, min(queries, keys - after)))
    shape = items, rows.stop - first, before + 1 + after
    if not shape[1]:
        return rows, scores.new_empty(shape)
    start = scores.storage_offset() + first * (keys + 1) - before
    return rows, scores.as_strided(shape, (queries * keys, keys + 1, 1), start)


def _edges(scores: Tensor, inner: slice, before: int, after: int) -> Iterator[_Edge]:
    """The rows before and after the inner ones that have keys at some of the distances."""
    _, queries, keys = scores.shape
    for first, last in ((0, inner.start), (inner.stop, min(queries, keys + before))):
        width = last - first + before + after
        left, right = max(0, before - first), min(width, keys - first + before)
        if last > first and right > left:
            yield _Edge(first, last, left, right, first - before + left)


def add_band(scores: Tensor, values: Tensor, before: int, after: int) -> None:
    """Add values (X, L, n) to scores (X, L, S), in place: values[i, t] to the score of query i and key i + t - before.

    n = before + 1 + after; either may be negative if the first query is not at the position of the first key.
    """
    inner, view = _inner(scores, before, after)
    view.add_(values[:, inner])
    for edge in _edges(scores, inner, before, after):
        rows = edge.last - edge.first
        matrix = scores.new_zeros(len(scores), rows, rows + before + after)
        diagonals(matrix, before + 1 + after).copy_(values[:, edge.first : edge.last])
        part = matrix[..., edge.left : edge.right]
        scores[:, edge.first : edge.last, edge.key : edge.key + part.shape[2]].add_(part)


def read_band(scores: Tensor, before: int, after: int) -> Tensor:
    """The scores (X, L, n) by distance, in the layout of `add_band`; zeros where there is no key."""
    band = scores.new_zeros(*scores.shape[:2], before + 1 + after)
    inner, view = _inner(scores, before, after)
    band[:, inner] = view
    for edge in _edges(scores, inner, before, after):
        rows = edge.last - edge.first
        matrix = scores.new_zeros(len(scores), rows, rows + before + after)
        part = matrix[..., edge.left : edge.right]
        part.copy_(scores[:, edge.first : edge.last, edge.key : edge.key + part.shape[2]])
        band[:, edge.first : edge.last] = diagonals(matrix, before + 1 + after)
    return band
