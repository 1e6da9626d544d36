"""Tiles of consecutive queries, and for each a window of keys: the segments near any of its queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 32  # keys in a block
_MOST_QUERIES = 64
# The narrowest window in a group, as a share of the widest. Less on a GPU, for fewer operator calls.
ALIKE = {"cpu": 0.75, "cuda": 0.5}
# The most scores computed together: enough to make the cost of operator calls small; it bounds memory.
SCORE_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 25}
_NO_KEY = -(1 << 62)


class Numbers(NamedTuple):
    """Segment numbers from 0 on, shared by queries (B, L_Q) and keys (B, L_K), without gaps wider than `reach`.

    total   the largest number of any row, plus 1
    """

    queries: Tensor
    keys: Tensor
    total: int


def number_segments(queries: Tensor, keys: Tensor, reach: int) -> Numbers:
    """Numbers from clean segments (B, L_Q) and (B, L_K). All distances from `reach` on are equal: wide gaps shrink."""
    together, order = torch.cat([queries, keys], dim=1).sort(dim=1)  # (B, L_Q + L_K)
    steps = together.diff(dim=1, prepend=together[:, :1]).clamp(max=reach)
    numbers = torch.empty_like(together).scatter_(1, order, steps.cumsum(1))  # (B, L_Q + L_K)
    length = queries.shape[1]
    return Numbers(numbers[:, :length].contiguous(), numbers[:, length:].contiguous(), int(numbers.max()) + 1)


class TileGroup(NamedTuple):
    """m tiles computed together.

    tiles   (m,) their numbers
    blocks  (m, H, W / 32) the key blocks of each window, numbered through the P + 2 blocks of every row and head; its
            first block, which is empty, where a window reaches past its keys
    slot    (m, S, W) 1 where a key is in a slot. The slots: one before the window's segments; one for each of these,
            n + 2N for queries in n segments; one after them; and one for hidden keys
    width   W, keys of a window
    ahead   number of these before the first query of the tile; only with relative positions
    before  keys before this column may be more than N segments before one of the queries; a multiple of 32
    after   keys from this column on may be more than N segments after one of the queries; a multiple of 32
    """

    tiles: Tensor
    blocks: Tensor
    slot: Tensor
    width: int
    ahead: int
    before: int
    after: int


@dataclass(frozen=True)
class TilePlan:
    """M tiles of T queries; each row of keys has P blocks, and an empty one on either side.

    queries    T
    blocks     P + 2
    later      (T, T) 1 for the keys after each query of a tile
    low, high  (M,) the first block of each tile's window, and the block after its last
    """

    groups: list[TileGroup]
    queries: int
    blocks: int
    later: Tensor
    low: Tensor
    high: Tensor
    causal: bool


def plan_tiles(
    numbers: Numbers, real: Tensor | None, near: int, causal: bool, horizon: int | None, heads: int, dtype: torch.dtype
) -> TilePlan:
    """The plan; `real` (B, L_K) bool is False at pads, or None without; `horizon` R is None without relative positions.

    The window of a tile holds the keys within N = `near` segments of any of its queries and, with relative positions,
    the keys at the R - 1 positions before its first query and after its last.
    """
    keys, device = numbers.keys, numbers.keys.device
    batch, length = keys.shape
    size = min(_MOST_QUERIES, -(-numbers.queries.shape[1] // BLOCK) * BLOCK)
    # No code of a row is equal, or near, to a code of another row.
    shift = (numbers.total + 2 * near + 2) * torch.arange(batch, device=device)[:, None]
    query_codes = fill_up(numbers.queries + shift, size)  # (B, tiles, T)
    tiles = query_codes.shape[1]
    first, last = query_codes.flatten(0, 1)[:, [0, -1]].unbind(1)  # (M,), codes of the first and the last query
    codes = keys + shift  # (B, L_K), never decreasing from row to row
    tile = torch.arange(len(first), device=device)
    row, start = tile // tiles, tile % tiles * size

    def place(code: Tensor, right: bool = False) -> Tensor:
        return torch.searchsorted(codes.flatten(), code, right=right) - row * length  # (M,), in the row

    begin_near, end_near = place(first - near), place(last + near, right=True)  # (M,), near to any query
    inner = place(last - near), place(first + near, right=True)  # near to all of them
    if causal:
        end_near = torch.minimum(end_near, start + size)
    if real is not None:  # skip the pads at the end of a row
        stop = (real * torch.arange(1, length + 1, device=device)).amax(1)[row]  # (M,)
        end_near = torch.minimum(end_near, stop)
    low = torch.minimum(begin_near, end_near) // BLOCK  # (M,), first block of the window
    high = torch.maximum((end_near + BLOCK - 1) // BLOCK, low)  # block after its last
    if causal or horizon is not None:  # a window covers positions before, in and after the tile
        begin, own, margin = start // BLOCK, size // BLOCK, -(-max((horizon or 1) - 1, 0) // BLOCK)
        # A tile beyond the last key and the horizon is moved back to them, else its window would span all pads between.
        ends = torch.full_like(row, length) if real is None else stop
        begin = torch.minimum(begin, -(-ends // BLOCK) + margin)
        low = torch.minimum(low, begin - margin).clamp(min=0)
        if not causal:
            high = torch.maximum(high, (begin + own + margin).clamp(max=-(-length // BLOCK)))
        before = (begin - low).clamp(min=margin)
        behind = (high - begin - own).clamp(min=0 if causal else margin)
    else:
        begin, own, before, behind = low, 0, torch.zeros_like(low), (high - low).clamp(min=1)
    order = (before + behind).argsort(descending=True)
    kind = device.type if device.type in SCORE_NUMBERS else "cuda"
    most = SCORE_NUMBERS[kind] // (heads * size * BLOCK)
    count = -(-length // BLOCK)
    edges = [x - begin * BLOCK for x in inner]  # counted from the first query
    bounds = torch.stack([before, behind, last - first + 1, *edges])[:, order]
    *sides, lefts, rights = bounds.tolist()
    key_codes = fill_up(codes if real is None else codes.masked_fill(~real, _NO_KEY), BLOCK, _NO_KEY)  # (B, P, 32)
    key_codes = functional.pad(key_codes, (0, 0, 1, 1), value=_NO_KEY).flatten(0, 1)  # (B (P + 2), 32)
    found = _Tiles(row, first - near, begin, low, high, key_codes, heads, count + 2)
    groups = []
    for chosen, ahead, width, segments in _together(sides, own, most, ALIKE[kind]):
        left = min(max(ahead - -max(lefts[chosen]) // BLOCK, 0), width)  # in blocks, rounded up
        right = min(max(ahead + min(rights[chosen]) // BLOCK, 0), width)
        groups.append(found.group(order[chosen], ahead, width, segments + 2 * near, left, right, dtype))
    later = torch.ones(size, size, dtype=dtype, device=device).triu_(1)
    return TilePlan(groups, size, count + 2, later, low, high, causal)


class _Tiles(NamedTuple):
    """Tiles and their windows; a code is a segment number, shifted so that no two rows share one.

    row            (M,) the row of each tile
    base           (M,) the code of the first segment of the window
    begin          (M,) the block that windows are counted from
    low, high      (M,) the first block of the window, and the block after its last
    key_codes      (B (P + 2), 32), far below all others where there is no key
    heads, each    H, and the P + 2 blocks of each head
    """

    row: Tensor
    base: Tensor
    begin: Tensor
    low: Tensor
    high: Tensor
    key_codes: Tensor
    heads: int
    each: int

    def group(
        self, at: Tensor, ahead: int, width: int, segments: int, before: int, after: int, dtype: torch.dtype
    ) -> TileGroup:
        """The group of tiles `at` (m,); ahead, width, before and after in blocks; segments: the most in a window."""
        block = self.begin[at, None] - ahead + torch.arange(width, device=at.device)  # (m, W / 32), in the row
        block = torch.where((block >= self.low[at, None]) & (block < self.high[at, None]), block + 1, 0)
        row = self.row[at, None]  # (m, 1)
        code = self.key_codes[block + row * self.each].flatten(1)  # (m, W)
        # The slots before and after the segments of the window take the other keys of its blocks.
        place = (code - self.base[at, None] + 1).clamp(0, segments + 1).masked_fill_(code == _NO_KEY, segments + 2)
        slot = (place[:, None] == torch.arange(segments + 3, device=at.device)[:, None]).to(dtype)  # (m, S, W)
        head = torch.arange(self.heads, device=at.device)
        blocks = block[:, None] + ((row * self.heads + head) * self.each)[..., None]  # (m, H, W / 32)
        return TileGroup(at, blocks, slot, *(BLOCK * n for n in (width, ahead, before, after)))


def _together(sides: list[list[int]], own: int, most: int, alike: float) -> list[tuple[slice, int, int, int]]:
    """Runs of tiles by decreasing width: at most `most` blocks in all, no tile narrower than a share `alike` of the
    widest. For each run: its slice, the largest part ahead, the width, the most segments of a tile's queries."""
    befores, afters, spans = sides
    runs: list[tuple[slice, int, int, int]] = []
    begin = ahead = behind = segments = 0
    for tile, (before, after, span) in enumerate(zip(befores, afters, spans, strict=True)):
        wider = max(ahead, before) + own + max(behind, after)
        if tile > begin and (
            (tile + 1 - begin) * wider > most or before + own + after < alike * (ahead + own + behind)
        ):
            runs.append((slice(begin, tile), ahead, ahead + own + behind, segments))
            begin, ahead, behind, segments = tile, before, after, span
        ahead, behind, segments = max(ahead, before), max(behind, after), max(segments, span)
    return [*runs, (slice(begin, len(spans)), ahead, ahead + own + behind, segments)]


def fill_up(codes: Tensor, size: int, value: int | None = None) -> Tensor:
    """Rows (B, L) cut into (B, n, size), padded with `value` or, if None, with their last value."""
    missing = -codes.shape[1] % size
    last = codes[:, -1:] if value is None else codes.new_full((1, 1), value)
    return torch.cat([codes, last.expand(len(codes), missing)], dim=1).unflatten(1, (-1, size))
