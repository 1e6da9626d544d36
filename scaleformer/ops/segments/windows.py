"""Windows of keys around tiles of queries: the layout of tensors, and the columns that relative positions concern."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.blocks import diagonals
from scaleformer.ops.segments.tiles import BLOCK, TileGroup, TilePlan


def to_tiles(x: Tensor, size: int) -> Tensor:
    """(B, H, L, n) -> (M, H, T, n), zeros where rows are padded."""
    x = functional.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))  # (B, H, tiles, T, n)
    return x.transpose(1, 2).flatten(0, 1).contiguous()


def from_tiles(x: Tensor, batch: int, length: int) -> Tensor:
    """(M, H, T, n) -> (B, H, L, n), without the padding of rows."""
    return x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def to_blocks(*parts: Tensor, pads: Tensor | None = None, more: int = 0) -> Tensor:
    """(B, H, L, n) each -> (B H (P + 2) + more, 32, sum of n): the parts joined along n, in P blocks for each head with
    a block of zeros before and after them; zeros also in their padding and at `pads` (B, 1, L, 1) bool. The last `more`
    blocks are uninitialised."""
    batch, heads, length, _ = parts[0].shape
    count = -(-length // BLOCK) + 2
    blocks = parts[0].new_empty(batch * heads * count + more, BLOCK, sum(x.shape[3] for x in parts))
    rows = blocks[: len(blocks) - more].view(batch, heads, count * BLOCK, -1)
    rows[:, :, :BLOCK], rows[:, :, BLOCK + length :] = 0, 0
    targets = rows[:, :, BLOCK : BLOCK + length].split([x.shape[3] for x in parts], dim=3)
    for target, x in zip(targets, parts, strict=True):
        target.copy_(x)
    if pads is not None:
        rows[:, :, BLOCK : BLOCK + length].masked_fill_(pads, 0.0)
    return blocks


def from_blocks(blocks: Tensor, like: Tensor) -> Tensor:
    """(B H (P + 2) or more, 32, n) -> (B, H, L, n), the shape of `like`: the inverse of `to_blocks`."""
    batch, heads, length = like.shape[:3]
    count = -(-length // BLOCK) + 2
    rows = blocks[: batch * heads * count].view(batch, heads, count * BLOCK, -1)
    return rows[:, :, BLOCK : BLOCK + length]


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b of (m, H, ...), without copying slices of rows; fp32 at least."""
    out = torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])
    return out.to(torch.promote_types(out.dtype, torch.float32))


def add_keys(total: Tensor, blocks: Tensor, weights: Tensor, rows: Tensor) -> None:
    """Add the gradient of the keys in a product to blocks (m, H, w/32) of total (N, 32, n)."""
    parts = product(weights.transpose(-1, -2), rows).view(blocks.numel(), -1)  # (m H w/32, 32 n)
    total.flatten(1).index_add_(0, blocks.flatten(), parts)


class KeyBlocks:
    """Keys in blocks, from which each group of tiles reads its windows.

    All groups share one buffer: new pages of memory cost more than the copies into them.
    """

    def __init__(self, blocks: Tensor, heads: int, plan: TilePlan) -> None:
        """blocks (N, 32, n) of `to_blocks`"""
        most = max(len(group.tiles) * group.width for group in plan.groups)
        self.blocks, self._place = blocks, blocks.new_empty(most * heads * blocks.shape[-1])

    def gather(self, numbers: Tensor) -> Tensor:
        """The rows (m, H, W, n) of the blocks (m, H, W/32), valid until the next call."""
        rows = self._place[: numbers.numel() * self.blocks[0].numel()].view(numbers.numel(), -1)
        torch.index_select(self.blocks.flatten(1), 0, numbers.flatten(), out=rows)
        return rows.view(*numbers.shape[:2], -1, self.blocks.shape[-1])


class Windows:
    """Access to the queries and keys of a call, group by group, for both passes."""

    def __init__(self, q: Tensor, band: int, plan: TilePlan) -> None:
        """q (B, H, L_Q, d); band: number of distances within the horizon, 2R - 1 or, if causal, R"""
        self.heads, self.width = q.shape[1], q.shape[3]
        self.q = to_tiles(q, plan.queries)  # (M, H, T, d)
        self.plan, self.band = plan, band

    def own(self, group: TileGroup, scores: Tensor) -> Tensor:
        """The scores (m, H, T, T) at the tile's own positions, of (m, H, T, W); only with relative positions."""
        return scores[..., group.ahead : group.ahead + self.plan.queries]

    def beyond(self, group: TileGroup, scores: Tensor) -> Tensor:
        """The scores at the positions after the tile."""
        return scores[..., group.ahead + self.plan.queries :]

    def within(self, group: TileGroup, scores: Tensor) -> Tensor:
        """View (m H, T, 2R-1 or R) of the scores within the horizon."""
        before = self.band - 1 if self.plan.causal else self.band // 2
        return diagonals(scores.flatten(0, 1), self.band, group.ahead - before)

    def later_sums(self, group: TileGroup, d_scores: Tensor) -> Tensor:
        """The sums (m, H, T, 1) over the keys after each query."""
        sums = (self.own(group, d_scores) * self.plan.later).sum(-1, keepdim=True)
        return sums + self.beyond(group, d_scores).sum(-1, keepdim=True)
