"""Cutting sequences into chunks and blocks, and the sliding windows of the relative term.

A chunk is C consecutive positions, the unit of the matrix products; a block is M chunks that are worked on together, so
that what is computed on the way stays in the cache and does not grow with the length. X stands for batch times heads.
Sequences outside are (B, H, L, n); inside, a block is (X, T, n) with T = M C, or (M X, C, n), chunk after chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# How many numbers an operand of a block has: on a CPU some of them share the cache, on a GPU they only bound memory.
BLOCK_NUMBERS = {"cpu": 1 << 17, "cuda": 1 << 26}


class Block(NamedTuple):
    """Positions start .. start + chunks C; the last ones may lie past the end of the sequence."""

    start: int
    chunks: int


def blocks_of(length: int, chunk: int, row_numbers: int, device: torch.device) -> list[Block]:
    """The blocks of a sequence; `row_numbers` is how many numbers one position has in all rows of the batch."""
    total = -(-length // chunk)
    most = max(1, BLOCK_NUMBERS.get(device.type, BLOCK_NUMBERS["cuda"]) // (chunk * row_numbers))
    return [Block(first * chunk, min(most, total - first)) for first in range(0, total, most)]


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
    """Positions start .. start + count of x (B, H, L, n) as (X, count, n), contiguous; zeros outside. May be a view."""
    return cut(x, start, count).to(dtype).flatten(0, 1).contiguous()  # (X, count, n)


def chunks_of(x: Tensor, block: Block, chunk: int, dtype: torch.dtype) -> Tensor:
    """A block of x (B, H, L, n) as (M X, C, n), contiguous, chunk after chunk; zeros outside. May be a view."""
    part = cut(x, block.start, block.chunks * chunk).to(dtype)
    part = part.unflatten(2, (block.chunks, chunk)).permute(2, 0, 1, 3, 4)  # (M, B, H, C, n)
    return part.flatten(0, 2).contiguous()  # (M X, C, n)


def store_rows(x: Tensor, part: Tensor, start: int) -> None:
    """Write part (X, T, n) to positions start .. start + T of x (B, H, L, n), as far as it has them."""
    count = min(part.shape[1], x.shape[2] - start)
    if count > 0:
        x[:, :, start : start + count] = part[:, :count].unflatten(0, x.shape[:2])


def store_chunks(x: Tensor, part: Tensor, block: Block) -> None:
    """Write part (M X, C, n) to the positions of the block in x (B, H, L, n), as far as it has them."""
    parts = part.unflatten(0, (block.chunks, *x.shape[:2])).permute(1, 2, 0, 3, 4)  # (B, H, M, C, n)
    target = x[:, :, block.start : block.start + block.chunks * part.shape[1]]
    if target.shape[2] == block.chunks * part.shape[1]:
        target.unflatten(2, parts.shape[2:4]).copy_(parts)
    elif target.shape[2] > 0:
        target.copy_(parts.flatten(2, 3)[:, :, : target.shape[2]])


def u_windows(
    v: Tensor,
    key_mask: Tensor | None,
    block: Block,
    chunk: int,
    before: int,
    after: int,
    extra: int,
    dtype: torch.dtype,
) -> Tensor:
    """U = [V, 1] in a window around each chunk of a block: (M, B, H, before + C + after + extra, e+1).

    Zeros at pads and outside the sequence; the last `extra` rows are left to the caller. The column of ones makes the
    denominator fall out of the products that make the numerators.
    """
    batch, heads, length, e = v.shape
    start, count = block.start - before, block.chunks * chunk + before + after
    width = before + chunk + after
    u = v.new_empty(block.chunks, batch, heads, width + extra, e + 1, dtype=dtype)
    window = u[:, :, :, :width]  # (M, B, H, W, e+1)
    values = cut(v, start, count).unfold(2, width, chunk)  # (B, H, M, e, W)
    window[..., :e].copy_(values.permute(2, 0, 1, 4, 3))
    if key_mask is None and start >= 0 and start + count <= length:
        window[..., e] = 1.0
        return u
    real = v.new_ones(1, length, dtype=torch.bool) if key_mask is None else key_mask
    real = cut(real[:, None, :, None], start, count).unfold(2, width, chunk)  # (B, 1, M, 1, W)
    real = real.permute(2, 0, 1, 4, 3)  # (M, B, 1, W, 1)
    window[..., e:].copy_(real)
    if key_mask is not None:
        window.masked_fill_(~real, 0.0)
    return u


def clear_pads(part: Tensor, key_mask: Tensor, block: Block, heads: int) -> None:
    """Put zeros at the pads of a block (M X, C, n), in place; key_mask (B, L)."""
    real = cut(key_mask[:, None, :, None], block.start, block.chunks * part.shape[1])  # (B, 1, M C, 1)
    real = real.unflatten(2, (block.chunks, -1)).permute(2, 0, 1, 3, 4)  # (M, B, 1, C, 1)
    part.unflatten(0, (block.chunks, -1, heads)).masked_fill_(~real, 0.0)


def add_windows(total: Tensor, parts: Tensor, chunk: int) -> None:
    """Add parts (X, M, W, n) to rows of total (X, T, n): that of chunk m to W rows from row m C on."""
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


def accumulate(states: Tensor, reverse: bool = False) -> Tensor:
    """Running sum along the first dimension, in place; `reverse` from the last on."""
    if states.device.type != "cpu":  # there a launch for each step costs more than three passes over all
        return scan(states, reverse)
    for i in range(1, states.shape[0]):
        if reverse:
            states[-i - 1] += states[-i]
        else:
            states[i] += states[i - 1]
    return states


def scan(states: Tensor, reverse: bool = False) -> Tensor:
    """As `accumulate`, in a constant number of operations."""
    order = (0,) if reverse else ()
    return states.copy_(states.flip(order).cumsum(0).flip(order))


def spread(table: Tensor, copies: int, heads: int) -> Tensor:
    """A table (1, r, d) for all heads or (H, r, d) as (copies H, r, d)."""
    return table.expand(copies, heads, -1, -1).flatten(0, 1)  # (copies H, r, d)


def table_gradient(weights: Tensor, features: Tensor, table: Tensor) -> Tensor:
    """The gradient of a table as `spread` for products features @ table^T: weights^T features, summed over the copies.

    weights (Y, C, r), features (Y, C, d), Y = copies H; table (1 or H, r, d).
    """
    if table.shape[0] == 1:
        return (weights.flatten(0, 1).transpose(0, 1) @ features.flatten(0, 1)).unsqueeze(0)  # (1, r, d)
    return (weights.transpose(1, 2) @ features).unflatten(0, (-1, table.shape[0])).sum(0)  # (H, r, d)
