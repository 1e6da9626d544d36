"""Cutting sequences into chunks and blocks, and the sliding windows of the relative term.

A chunk is C consecutive positions, the unit of the matrix products. A block is M chunks computed together, so that
intermediate results stay in the cache and do not grow with the length. X is batch times heads. Whole sequences are
(B, H, L, n); a block is (X, T, n) with T = M C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

T = TypeVar("T")

# The numbers in an operand of a block, to bound memory. Smaller blocks cost more calls, and cores wait for one another.
BLOCK_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 26}
# The most numbers in an operand of all blocks together for which all blocks are kept for backward. Products, which take
# more time and less memory, are always kept.
KEPT_NUMBERS = {"cpu": 1 << 21, "cuda": 1 << 26}


class Block(NamedTuple):
    """Positions start .. start + chunks C; the last may be past the end of the sequence."""

    start: int
    chunks: int


def blocks_of(length: int, chunk: int, row_numbers: int, device: torch.device) -> list[Block]:
    """The blocks of a sequence; `row_numbers` counts the numbers of one position in all rows of the batch."""
    total = -(-length // chunk)
    most = max(1, _limit(BLOCK_NUMBERS, device) // (chunk * row_numbers))
    return [Block(first * chunk, min(most, total - first)) for first in range(0, total, most)]


def little_enough(length: int, row_numbers: int, device: torch.device) -> bool:
    """Whether backward keeps the operands of a sequence instead of recomputing them; arguments as in `blocks_of`."""
    return length * row_numbers <= _limit(KEPT_NUMBERS, device)


def nth(parts: Sequence[T], number: int, size: int) -> Sequence[T]:
    """The `size` parts of block `number`, from the concatenated parts of all blocks."""
    return parts[number * size : (number + 1) * size]


def _limit(limits: dict[str, int], device: torch.device) -> int:
    return limits.get(device.type, limits["cuda"])


def cut(x: Tensor, start: int, count: int) -> Tensor:
    """Positions start .. start + count of x (B, H, L, n): a view, or a copy with zeros before 0 and after L."""
    length = x.shape[2]
    first, last = min(max(start, 0), length), min(max(start + count, 0), length)
    part = x[:, :, first:last]
    if last - first == count:
        return part
    left = min(max(-start, 0), count)
    return functional.pad(part, (0, 0, left, count - left - (last - first)))


def rows_of(x: Tensor, start: int, count: int, dtype: torch.dtype) -> Tensor:
    """Positions start .. start + count of x (B, H, L, n) as (X, count, n); zeros outside. May be a view."""
    return cut(x, start, count).to(dtype).flatten(0, 1)  # (X, count, n)


def store_rows(x: Tensor, part: Tensor, start: int) -> None:
    """Write part (X, T, n) to those of positions start .. start + T that x (B, H, L, n) has."""
    count = min(part.shape[1], x.shape[2] - start)
    if count > 0:
        x[:, :, start : start + count] = part[:, :count].unflatten(0, x.shape[:2])


def rows_at(x: Tensor, start: int, count: int) -> Tensor:
    """View of those of positions start .. start + count that x (B, H, L, n) has, as (X, at most count, n)."""
    return x.view(-1, *x.shape[2:])[:, start : start + count]


def u_windows(
    v: Tensor, key_mask: Tensor | None, block: Block, chunk: int, before: int, after: int, extra: int,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """U = [V, 1] in a window around each chunk of a block: (B, H, M, before + C + after + extra, e+1).

    Zeros at pads and outside the sequence; the caller fills the last `extra` rows. Through the column of ones, the
    products that compute the numerators compute the denominator as well.
    """
    batch, heads, length, e = v.shape
    start, count = block.start - before, block.chunks * chunk + before + after
    width = before + chunk + after
    u = v.new_empty(batch, heads, block.chunks, width + extra, e + 1, dtype=dtype)
    window = u[:, :, :, :width]  # (B, H, M, W, e+1)
    window[..., :e].copy_(cut(v, start, count).unfold(2, width, chunk).transpose(3, 4))
    real = None if key_mask is None else key_mask[:, None, :, None]  # (B, 1, L, 1)
    _mark(window, real, lambda x: cut(x, start, count).unfold(2, width, chunk).transpose(3, 4), start, count, length)
    return u


def _mark(
    u: Tensor, real: Tensor | None, place: Callable[[Tensor], Tensor], start: int, count: int, length: int
) -> None:
    """Fill the last column of u, 1 for a key, else 0, and zero other rows; `place` lays (B, 1, L, 1) out like u."""
    if real is None and start >= 0 and start + count <= length:
        u[..., -1] = 1.0
        return
    exists = u.new_ones(1, 1, length, 1, dtype=torch.bool) if real is None else real
    laid = place(exists)
    u[..., -1:].copy_(laid)
    if real is not None:
        u.masked_fill_(~laid, 0.0)


def u_rows(v: Tensor, key_mask: Tensor | None, start: int, count: int, dtype: torch.dtype) -> Tensor:
    """U = [V, 1] at positions start .. start + count: (X, count, e+1); zeros at pads and outside the sequence."""
    batch, heads, length, e = v.shape
    u = v.new_empty(batch, heads, count, e + 1, dtype=dtype)
    u[..., :e] = cut(v, start, count)
    real = None if key_mask is None else key_mask[:, None, :, None]  # (B, 1, L, 1)
    _mark(u, real, lambda x: cut(x, start, count), start, count, length)
    return u.flatten(0, 1)


def clear_pads(part: Tensor, key_mask: Tensor, start: int, heads: int) -> None:
    """Zero the pads of rows (X, T, n) that begin at position `start`, in place; key_mask (B, L)."""
    real = cut(key_mask[:, None, :, None], start, part.shape[1])  # (B, 1, T, 1)
    part.unflatten(0, (-1, heads)).masked_fill_(~real, 0.0)


def add_windows(total: Tensor, parts: Tensor, chunk: int) -> None:
    """Add parts (X, M, W, n) to total (X, T, n): the part of chunk m to the W rows from row m C on."""
    size = total.shape[2]
    assert total.stride()[1:] == (size, 1)
    for first in range(0, parts.shape[2], chunk):
        piece = parts[:, :, first : first + chunk]  # (X, M, at most C, n): they do not overlap
        strides = (total.stride(0), chunk * size, size, 1)
        total.as_strided(piece.shape, strides, total.storage_offset() + first * size).add_(piece)


def diagonals(matrix: Tensor, count: int, first: int = 0) -> Tensor:
    """View (Y, C, count) of matrix (Y, C, W), contiguous: entry [i, t] is matrix[i, first + i + t].

    Row i begins one place further right than row i - 1: a stride of W + 1.
    """
    items, rows, width = matrix.shape
    assert matrix.is_contiguous()
    assert 0 <= first <= width - (rows + count - 1)
    return matrix.as_strided((items, rows, count), (rows * width, width + 1, 1), matrix.storage_offset() + first)


def running(parts: Tensor, carry: Tensor, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """The carry plus the sum of parts (X, M, ...) before each part, (X, M, ...), and of all parts, (X, ...).

    `reverse`: the carry plus the sum of the parts after each part, and of all parts.
    """
    if parts.device.type != "cpu":  # on a GPU one launch for each part costs more than three passes over all
        return scan_with_carry(parts, carry, reverse)
    sums = torch.empty_like(parts)
    order = slice(None, None, -1 if reverse else 1)
    each, before = parts.unbind(1)[order], sums.unbind(1)[order]
    before[0].copy_(carry)
    for part, last, after in zip(each, before, before[1:], strict=False):
        torch.add(last, part, out=after)
    return sums, before[-1] + each[-1]


def scan_with_carry(parts: Tensor, carry: Tensor, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """As `running`, in a constant number of operations."""
    order = (1,) if reverse else ()
    sums = torch.cat([carry.unsqueeze(1), parts.flip(order)], dim=1).cumsum(1)
    return sums[:, :-1].flip(order).contiguous(), sums[:, -1]


def spread(table: Tensor, copies: int, heads: int) -> Tensor:
    """A table (1, r, d) for all heads or (H, r, d) as (copies H, r, d)."""
    return table.expand(copies, heads, -1, -1).flatten(0, 1)  # (copies H, r, d)


def table_gradient(weights: Tensor, features: Tensor, table: Tensor) -> Tensor:
    """The gradient of a table given to `spread`, of products features @ table^T: weights^T features, a sum over copies.

    weights (Y, C, r), features (Y, C, d), Y = copies H; table (1 or H, r, d).
    """
    if table.shape[0] == 1:
        return (weights.flatten(0, 1).transpose(0, 1) @ features.flatten(0, 1)).unsqueeze(0)  # (1, r, d)
    return (weights.transpose(1, 2) @ features).unflatten(0, (-1, table.shape[0])).sum(0)  # (H, r, d)
