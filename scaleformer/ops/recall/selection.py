"""Which tokens are kept in mind of all that has gone by: those of highest priority, for every place at once.

The priority of a token is its own, whoever asks. So a token that has given way to others never comes back, and what is
kept can be had for all places of a row from one pass over its blocks, or step by step.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.tiles import BLOCK

NONE = -1.0  # the rank of what is no key


class RankedKeys:
    """Keys by priority: which `count` are highest among those n that stand at one end of each row, for any n.

    rank  (B, H, L) of the keys, whole numbers as floats, no two alike in a row; `NONE` at pads. Of two keys of like
          priority the one farther from that end, nearer to who asks, is higher
    """

    def __init__(self, priority: Tensor, real: Tensor | None, count: int, after: bool) -> None:
        """priority (B, H, L); real (B, L) bool, or None for all; after: counted from the last key on, not the first"""
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
        """The highest ranks of the blocks before each, and of all: (B, H, P + 1, N)."""
        return (running_tops if self.rank.device.type == "cpu" else scan_tops)(self.blocks, self.count)

    def least(self, ends: Tensor) -> Tensor:
        """The least rank kept of ends (B, E) keys, or one below those of all real ones: (B, H, E).

        By counting how many of the x highest stand among them, for every x: for few ends and keys.
        """
        highest = self.order.flip(-1).unsqueeze(2)  # (B, H, 1, L)
        standing = (highest < ends[:, None, :, None]).cumsum(-1, dtype=torch.int32)  # (B, H, E, L)
        too_few = (standing < self.count).sum(-1)  # (B, H, E)
        return (self.order.shape[-1] - 1 - too_few).clamp(min=0).to(self.rank.dtype)

    def among(self, ends: Tensor) -> Tensor:
        """The ranks kept of ends (B, E) keys: (B, H, E, N), the highest first; `NONE` where there are fewer keys."""
        whole, rest = ends // BLOCK, ends % BLOCK
        own = _take(self.blocks, whole.clamp(max=self.blocks.shape[2] - 1))  # (B, H, E, 32)
        steps = torch.arange(BLOCK, device=ends.device)
        own = own.masked_fill((steps >= rest[..., None])[:, None], NONE)
        return torch.cat([_take(self.tops, whole), own], dim=-1).topk(self.count).values

    def positions(self, ranks: Tensor) -> Tensor:
        """Where the keys of `ranks` (B, H, E, N) stand in their rows; anywhere for `NONE`."""
        place = self.order.gather(2, ranks.clamp(min=0).long().flatten(2)).view(ranks.shape)
        return self.order.shape[-1] - 1 - place if self.after else place


def running_tops(blocks: Tensor, count: int) -> Tensor:
    """The `count` highest of the blocks (B, H, P, n) before each, and of all: (B, H, P + 1, count), `NONE` for want."""
    top = blocks.new_full((*blocks.shape[:2], count), NONE)
    tops = [top]
    for block in blocks.unbind(2):  # (B, H, n)
        top = torch.cat([top, block], dim=-1).topk(count, sorted=False).values
        tops.append(top)
    return torch.stack(tops, dim=2)


def scan_tops(blocks: Tensor, count: int) -> Tensor:
    """As `running_tops`, in a number of operations that grows with the logarithm of P: each has more work to do."""
    tops = functional.pad(blocks, (0, max(count - blocks.shape[3], 0), 1, 0), value=NONE)
    tops[:, :, 0] = NONE
    tops = tops.topk(count, sorted=False).values  # (B, H, P + 1, N), of one block
    reach = 1
    while reach < tops.shape[2]:  # each is of `reach` blocks: join those that end where it begins
        joined = torch.cat([tops[:, :, :-reach], tops[:, :, reach:]], dim=-1).topk(count, sorted=False).values
        tops = torch.cat([tops[:, :, :reach], joined], dim=2)
        reach *= 2
    return tops


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, P, n) at index (B, E): (B, H, E, n)."""
    where = index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
    return x.gather(2, where)


class FarSide(NamedTuple):
    """Where the keys lie that are far from a query on one side of it, before or after: counted from the end of the row
    that they begin at.

    after     whether it is the side of later segments, counted from the last key on
    ends      (B, numbers) how many keys are far from the queries of each segment number
    windows   (B, tiles) how many lie outside of each tile's window
    all_kept  whether the keys far from any segment are known to be no more than are kept
    """

    after: bool
    ends: Tensor
    windows: Tensor
    all_kept: bool


class Recalled(NamedTuple):
    """What is kept on one side, of `count` keys at most.

    rank      (B, H, L_K) of the keys, whole numbers as floats; `NONE` at pads
    least     (B, H, numbers): the queries of a segment number see no rank below it
    outside   of each tile's window: (B, H, tiles, count) where those kept stand, and their ranks, `NONE` where there
              are fewer; None where there are no windows
    """

    rank: Tensor
    least: Tensor
    outside: tuple[Tensor, Tensor] | None


@torch.no_grad()
def select(priority: Tensor, real: Tensor | None, side: FarSide, count: int, windows: bool) -> Recalled:
    """What is kept on a side for every segment number, and for every tile if there are `windows`.

    priority (B, H, L_K), real (B, L_K) bool or None
    """
    keys = RankedKeys(priority, real, count, side.after)
    if not windows:
        return Recalled(keys.rank, keys.least(side.ends), None)
    least = keys.among(side.ends)[..., -1].clamp(min=0)  # (B, H, numbers)
    kept = keys.among(side.windows)  # (B, H, tiles, count)
    return Recalled(keys.rank, least, (keys.positions(kept), kept))
