"""Products of blocks of rows with the rows around them: weighted sums of near rows, forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def banded_product(weights: Tensor, a: Tensor, before: int) -> Tensor:
    """out[n T + i] = sum_w weights[n, i, w] a[n T - before + w]: (X, L, F) from a (X, L, F).

    weights  (X L / T, T, before + T + after), zero where the row is outside 0 .. L - 1; before, after <= T

    The X sequences are concatenated: rows that a block reads beyond the ends of its own sequence have weight zero.
    """
    out: Tensor = _BandedProduct.apply(weights, a, before)
    return out


class _BandedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, a: Tensor, before: int) -> Tensor:  # type: ignore[override]
        a = a.contiguous()
        ctx.save_for_backward(weights, a)
        ctx.before = before
        out = torch.empty_like(a)
        of_blocks = out.view(*weights.shape[:2], -1)  # (n, T, F)
        for blocks, columns, window in _windows(weights, a, before):
            torch.bmm(weights[blocks, :, columns], window, out=of_blocks[blocks])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        weights, a = ctx.saved_tensors
        before, block = ctx.before, weights.shape[1]
        d_out = grad.reshape(*weights.shape[:2], -1)  # (n, T, F)
        d_weights = torch.zeros_like(weights)
        for blocks, columns, window in _windows(weights, a, before):
            d_weights[blocks, :, columns] = d_out[blocks] @ window.transpose(1, 2)
        back = weights.transpose(1, 2)  # (n, W, T)
        d_a = back[:, before : before + block] @ d_out  # (n, T, F)
        d_a[:-1, block - before :] += back[1:, :before] @ d_out[1:]
        d_a[1:, : back.shape[1] - block - before] += back[:-1, before + block :] @ d_out[:-1]
        return d_weights, d_a.view_as(a), None


def _windows(weights: Tensor, a: Tensor, before: int) -> list[tuple[slice, slice, Tensor]]:
    """Blocks, the columns of their weights, and the rows of a for these columns: for the first block and the last,
    whose windows reach past the ends of a, and for all blocks between, in one view."""
    count, block, width = weights.shape
    after = width - block - before
    rows = a.view(count * block, -1)  # (n T, F)
    if count == 1:
        return [(slice(0, 1), slice(before, before + block), rows[None])]
    edges = [
        (slice(0, 1), slice(before, width), rows[None, : block + after]),
        (slice(count - 1, count), slice(0, width - after), rows[None, -block - before :]),
    ]
    if count == 2:
        return edges
    size = rows.shape[1]
    start = rows.storage_offset() + (block - before) * size
    inner = rows.as_strided((count - 2, width, size), (block * size, size, 1), start)  # they overlap
    return [*edges, (slice(1, count - 1), slice(0, width), inner)]


def sums_outside(a: Tensor, block: int, margin: int, after: bool) -> Tensor:
    """Sums (X, n, K, F) over the rows of a (X, n T, F) more than `margin` rows before each block of T rows and, if
    `after`, over the rows more than `margin` after it; K = 1 or 2."""
    out: Tensor = _SumsOutside.apply(a, block, margin, after)
    return out


class _SumsOutside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, block: int, margin: int, after: bool) -> Tensor:  # type: ignore[override]
        ctx.options = block, margin, a.shape[1]
        blocks, cut = a.shape[1] // block, block - margin
        inner = (blocks - 2) * block
        out = a.new_zeros(a.shape[0], blocks, 1 + after, a.shape[2])
        out[:, 1, 0] = a[:, :cut].sum(1)
        out[:, 2:, 0] = a[:, cut : cut + inner].unflatten(1, (blocks - 2, block)).sum(2)
        out[:, :, 0] = out[:, :, 0].cumsum(1)
        if after:
            out[:, -2, 1] = a[:, -cut:].sum(1)
            out[:, :-2, 1] = a[:, -cut - inner : -cut].unflatten(1, (blocks - 2, block)).sum(2)
            out[:, :, 1] = out[:, :, 1].flip(1).cumsum(1).flip(1)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        block, margin, count = ctx.options
        row = torch.arange(count, device=grad.device)
        later = grad[:, :, 0].flip(1).cumsum(1).flip(1)  # (X, n, F), each block and all after it
        later = torch.cat([later[:, 1:], torch.zeros_like(later[:, :2])], dim=1)
        d_a = later.index_select(1, (row + margin) // block)  # (X, n T, F)
        if grad.shape[2] == 2:
            earlier = grad[:, :, 1].cumsum(1)  # (X, n, F), each block and all before it
            earlier = torch.cat([torch.zeros_like(earlier[:, :1]), earlier], dim=1)
            d_a += earlier.index_select(1, (row - margin).clamp(min=0) // block)
        return d_a, None, None, None
