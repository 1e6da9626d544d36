"""Selection of the kept tokens: those of highest priority, for every position at once.

A token's priority does not depend on the query. So a dropped token never comes back, and the kept tokens of all
positions in a row can be computed in one pass over its blocks, or step by step.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.tiles import BLOCK

NONE = -1.0  # the rank of pads and missing keys


class Ends(NamedTuple):
    """How many keys of a row count, from one end of it; E such numbers a row, of the L keys in P blocks.

    keys    (B, E) their number
    whole   (B, E) the number of whole blocks of them
    block   (B, E) the block that comes then; the last where there is none
    beyond  (B, 1, E, 32) bool, the keys of that block that do not count
    """

    keys: Tensor
    whole: Tensor
    block: Tensor
    beyond: Tensor


def ends_of(keys: Tensor, length: int) -> Ends:
    """The ends after so many `keys` (B, E) of rows of that length."""
    whole, rest = keys // BLOCK, keys % BLOCK
    beyond = torch.arange(BLOCK, device=keys.device) >= rest[..., None]  # (B, E, 32)
    return Ends(keys, whole, whole.clamp(max=-(-length // BLOCK) - 1), beyond[:, None])


class RankedKeys:
    """Keys by priority: for any n, the `count` highest among the n keys at one end of each row.

    rank  (B, H, L) of the keys, whole numbers as floats, distinct within a row; `NONE` at pads. Of two keys with equal
          priority, the one farther from that end, and so nearer to the query, ranks higher
    """

    def __init__(self, priority: Tensor, real: Tensor | None, count: int, after: bool) -> None:
        """priority (B, H, L); real (B, L) bool, or None for all; after: count from the last key, not from the first"""
        if after:
            priority, real = priority.flip(-1), None if real is None else real.flip(-1)
        if real is not None:
            priority = priority.masked_fill(~real[:, None], float("-inf"))
        self.count, self.after = count, after
        self.order = priority.argsort(dim=-1, stable=True)  # (B, H, L), the place of each rank
        steps = torch.arange(priority.shape[-1], device=priority.device, dtype=priority.dtype)
        rank = torch.empty_like(priority).scatter_(-1, self.order, steps.expand_as(priority))
        if real is not None:
            rank = rank.masked_fill_(~real[:, None], NONE)
        self._from_end = rank
        self.rank = rank.flip(-1) if after else rank

    @cached_property
    def blocks(self) -> Tensor:
        """The ranks in blocks, counted from the end: (B, H, P, 32)."""
        rank = self._from_end
        return functional.pad(rank, (0, -rank.shape[-1] % BLOCK), value=NONE).unflatten(-1, (-1, BLOCK))

    @cached_property
    def tops(self) -> Tensor:
        """The highest ranks of the blocks before each block, and of all blocks: (B, H, P + 1, N)."""
        return (running_tops if self.rank.device.type == "cpu" else scan_tops)(self.blocks, self.count)

    def least(self, ends: Tensor) -> Tensor:
        """The lowest rank kept among the first `ends` (B, E) keys, or one below all real ranks: (B, H, E).

        Counts, for every x, how many of the x highest are among them: meant for few ends and keys.
        """
        highest = self.order.flip(-1).unsqueeze(2)  # (B, H, 1, L)
        standing = (highest < ends[:, None, :, None]).cumsum(-1, dtype=torch.int32)  # (B, H, E, L)
        too_few = (standing < self.count).sum(-1)  # (B, H, E)
        return (self.order.shape[-1] - 1 - too_few).clamp(min=0).to(self.rank.dtype)

    def among(self, ends: Ends) -> Tensor:
        """The ranks kept among the first keys, up to each end: (B, H, E, N), highest first; `NONE` if keys run out."""
        own = _take(self.blocks, ends.block).masked_fill_(ends.beyond, NONE)  # (B, H, E, 32)
        return torch.cat([_take(self.tops, ends.whole), own], dim=-1).topk(self.count).values

    def positions(self, ranks: Tensor) -> Tensor:
        """The positions of the keys of `ranks` (B, H, E, N) in their rows; arbitrary for `NONE`."""
        place = self.order.gather(2, ranks.clamp(min=0).long().flatten(2)).view(ranks.shape)
        return self.order.shape[-1] - 1 - place if self.after else place


def running_tops(blocks: Tensor, count: int) -> Tensor:
    """The `count` highest ranks of the blocks (B, H, P, n) before each block, and of all: (B, H, P + 1, count), `NONE`
    where there are fewer."""
    top = blocks.new_full((*blocks.shape[:2], count), NONE)
    tops = [top]
    for block in blocks.unbind(2):  # (B, H, n)
        top = torch.cat([top, block], dim=-1).topk(count, sorted=False).values
        tops.append(top)
    return torch.stack(tops, dim=2)


def scan_tops(blocks: Tensor, count: int) -> Tensor:
    """As `running_tops`, in O(log P) larger operations."""
    tops = functional.pad(blocks, (0, max(count - blocks.shape[3], 0), 1, 0), value=NONE)
    tops[:, :, 0] = NONE
    tops = tops.topk(count, sorted=False).values  # (B, H, P + 1, N), of one block
    reach = 1
    while reach < tops.shape[2]:  # each entry covers `reach` blocks: join it with the one that ends where it begins
        joined = torch.cat([tops[:, :, :-reach], tops[:, :, reach:]], dim=-1).topk(count, sorted=False).values
        tops = torch.cat([tops[:, :, :reach], joined], dim=2)
        reach *= 2
    return tops


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, P, n) at index (B, E): (B, H, E, n)."""
    where = index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
    return x.gather(2, where)


class FarSide(NamedTuple):
    """How many keys are far from the queries on one side, before or after; counted from that end of the row.

    after     whether this is the side of later segments, counted from the last key
    ends      of the keys far from the queries of each segment number
    windows   of the keys outside each tile's window
    all_kept  whether it is known that every far key is kept, since there are few enough
    """

    after: bool
    ends: Ends
    windows: Ends
    all_kept: bool


class Recalled(NamedTuple):
    """The keys kept on one side, at most `count`.

    rank      (B, H, L_K) of the keys, whole numbers as floats; `NONE` at pads
    least     (B, H, numbers): the lowest rank that the queries of a segment number see
    outside   kept keys outside each tile's window, in whole blocks: their rows among those of all heads
              (B, tiles, H, room) and their ranks, 0 and `NONE` where there are fewer; None without windows
    """

    rank: Tensor
    least: Tensor
    outside: tuple[Tensor, Tensor] | None


@torch.no_grad()
def select(priority: Tensor, real: Tensor | None, side: FarSide, count: int, head: Tensor | None) -> Recalled:
    """The keys kept on a side for every segment number and, unless `head` is None, for every tile.

    priority (B, H, L_K), real (B, L_K) bool or None; head (B, H, 1, 1) the first row of each head's keys
    """
    keys = RankedKeys(priority, real, count, side.after)
    if head is None:
        return Recalled(keys.rank, keys.least(side.ends.keys), None)
    least = keys.among(side.ends)[..., -1].clamp(min=0)  # (B, H, numbers)
    kept = keys.among(side.windows)  # (B, H, tiles, count)
    row = (head + keys.positions(kept)).masked_fill_(kept < 0, 0)  # a row of zeros
    room = -count % BLOCK
    if room:
        row, kept = functional.pad(row, (0, room)), functional.pad(kept, (0, room), value=NONE)
    return Recalled(keys.rank, least, (row.transpose(1, 2), kept.transpose(1, 2)))
