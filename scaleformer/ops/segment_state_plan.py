"""How segment-gated attention by states goes through a batch: blocks of pieces, and the segments that each can see."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.segment_plan import Pieces, cut_segments

_MOST_SEGMENTS = 8  # of queries in a block: the mixing of states grows with their number
_WIDEST = 64  # key segments near to some query of a block


class PieceBlock(NamedTuple):
    """Consecutive pieces of one row of the batch, and the segments they are part of.

    row           the row
    first, last   the pieces first .. last - 1
    begin, end    their positions
    run, run_end  their segments, counted from 0 in the row
    near, far     key segments near .. far - 1 are near to some query of the block; those before and after them are far
                  to all. Not for blocks of keys
    """

    row: int
    first: int
    last: int
    begin: int
    end: int
    run: int
    run_end: int
    near: int = 0
    far: int = 0


@dataclass(frozen=True)
class StatePlan:
    """How one call goes.

    chunk         C, the most positions of a piece
    queries, keys the pieces, one and the same if the segments are
    query_blocks, key_blocks
    key_segments  (B, L_K) the segment number of each key
    numbers       (B, S) those of the key segments, rising; a high number where a row has fewer
    whole         whether each piece of the keys is a whole segment
    """

    chunk: int
    queries: Pieces
    keys: Pieces
    query_blocks: list[PieceBlock]
    key_blocks: list[PieceBlock]
    key_segments: Tensor
    numbers: Tensor
    whole: bool


def plan_states(
    query_segments: Tensor, key_segments: Tensor, reach: int, causal: bool, chunk: int, most_places: int
) -> StatePlan:
    """Plan for clean segments (B, L_Q), (B, L_K); blocks of at most `most_places` places, or of one piece."""
    keys = cut_segments(key_segments, chunk)
    same = query_segments is key_segments or torch.equal(query_segments, key_segments)
    queries = keys if same else cut_segments(query_segments, chunk)
    batch, length = key_segments.shape
    count = int(keys.run.max()) + 1
    numbers = torch.full((batch, count), torch.iinfo(torch.long).max // 2, device=key_segments.device)
    numbers.scatter_(1, keys.run, keys.segment)
    known = [row[: max(run) + 1] for row, run in zip(numbers.tolist(), keys.run.tolist(), strict=True)]

    most_pieces = max(1, most_places // chunk)
    key_blocks = _cut(keys, length, most_pieces, None, reach, causal)
    query_blocks = _cut(queries, query_segments.shape[1], most_pieces, known, reach, causal)
    whole = not bool((keys.run[:, 1:] == keys.run[:, :-1]).logical_and(keys.start[:, 1:] < length).any())
    return StatePlan(chunk, queries, keys, query_blocks, key_blocks, key_segments, numbers, whole)


def _cut(
    pieces: Pieces, length: int, most_pieces: int, known: list[list[int]] | None, reach: int, causal: bool
) -> list[PieceBlock]:
    blocks = []
    rows = zip(pieces.start.tolist(), pieces.run.tolist(), pieces.segment.tolist(), strict=True)
    for row, (starts, runs, numbers) in enumerate(rows):
        total = sum(start < length for start in starts)
        ends = [*starts[1:total], length]
        first = 0
        while first < total:
            near = far = 0
            if known is not None:
                near = bisect_right(known[row], numbers[first] - reach)
            last = first
            while last < total and last - first < most_pieces:
                if known is not None:
                    after = bisect_left(known[row], numbers[last] + (0 if causal else reach))
                    crowded = runs[last] - runs[first] >= _MOST_SEGMENTS or after - near > _WIDEST
                    if crowded and last > first:
                        break
                    far = max(after, near)
                last += 1
            run, run_end = runs[first], runs[last - 1] + 1
            blocks.append(PieceBlock(row, first, last, starts[first], ends[last - 1], run, run_end, near, far))
            first = last
    return blocks
