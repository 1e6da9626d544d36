"""Decoding states: which rows they continue, and the cache of keys and values. H heads, T positions, d head width."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import Tensor

FIRST_ROOM = 64  # positions of a cache that grows


def reorder(state: Any, rows: Tensor) -> Any:
    """The state whose row n continues the old row rows[n]; the old state must not be used again.

    A state is a tensor with the rows first, a tuple of states, or an object with a method `reorder(rows)`. Whatever
    else it holds stays as it is.
    """
    if isinstance(state, Tensor):
        return state[rows]
    if isinstance(state, tuple):
        parts = [reorder(part, rows) for part in state]
        return getattr(state, "_make", tuple)(parts)
    return state.reorder(rows) if hasattr(state, "reorder") else state


Cache = TypeVar("Cache", bound="KeyValueCache")


@dataclass
class KeyValueCache:
    """Keys and values (rows, H, T, d), of which the first `length` are written.

    mask      (rows, T) bool, True = seen; None if all are
    segments  (rows, T) long, those of the keys, where the mechanism needs them
    """

    key: Tensor
    value: Tensor
    length: int
    mask: Tensor | None = None
    segments: Tensor | None = None

    def reorder(self: Cache, rows: Tensor) -> Cache:
        key, value = (take_rows(buffer, rows, self.length) for buffer in (self.key, self.value))
        mask, segments = (reorder(part, rows) for part in (self.mask, self.segments))
        return replace(self, key=key, value=value, mask=mask, segments=segments)


def write(state: KeyValueCache, key: Tensor, value: Tensor, position: int) -> KeyValueCache:
    """The cache with key and value (rows, H, d) of one more position."""
    keys, values = (grow(b, position + 1, dim=2) for b in (state.key, state.value))  # (rows, H, T, d)
    keys[:, :, position] = key
    values[:, :, position] = value
    return KeyValueCache(keys, values, position + 1)


def room(like: Tensor, length: int, *shape: int) -> Tensor:
    """Zeros (rows, ..., length, d) for `shape` (rows, ..., d), a buffer to be written position by position.

    In memory, positions come first: what a step writes and what `take_rows` copies is contiguous."""
    return like.new_zeros(length, *shape).movedim(0, -2)


def grow(buffer: Tensor, length: int, dim: int) -> Tensor:
    """`buffer`, doubled along `dim` if it cannot hold `length`, so that the total copying stays linear."""
    have = buffer.shape[dim]
    if have >= length:
        return buffer
    moved = buffer.movedim(dim, 0)
    grown = moved.new_zeros(max(length, 2 * have), *moved.shape[1:])
    grown[:have] = moved
    return grown.movedim(0, dim)


def take_rows(buffer: Tensor, rows: Tensor, length: int) -> Tensor:
    """The rows (N',) long of a buffer (N, H, T, d) of which `length` positions are written; in place if N' = N."""
    written = buffer.movedim(2, 0)[:length].index_select(1, rows)  # (length, N', H, d)
    if len(rows) != len(buffer):
        buffer = room(buffer, buffer.shape[2], len(rows), buffer.shape[1], buffer.shape[3])
    buffer.movedim(2, 0)[:length] = written
    return buffer
