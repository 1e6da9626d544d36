"""Where segments lie: clean segment numbers, and positions cut into blocks that never cross a segment's border."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

NO_SEGMENT = torch.iinfo(torch.long).min // 2  # of a state without tokens: before all others, also one segment on


def clean_segments(
    query_segments: Tensor, key_segments: Tensor, key_mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """Segment numbers of queries (B, L_Q) and keys (B, L_K) that never fall, whatever the pads hold.

    A pad keeps its number if it lies between those of the real keys around it. In causal attention query i and key i
    have one segment.
    """
    queries, keys = query_segments.long(), key_segments.long()
    if causal:
        common = min(keys.shape[1], queries.shape[1])
        given = keys[:, :common]
        if key_mask is not None:
            given = torch.where(key_mask[:, :common], given, queries[:, :common])
        queries = torch.cat([given, queries[:, common:]], dim=1)
        keys = torch.cat([given, keys[:, common:]], dim=1)
    if key_mask is not None:
        highest = torch.iinfo(torch.long).max
        following = keys.masked_fill(~key_mask, highest).flip(1).cummin(1).values.flip(1)  # (B, L_K)
        keys = torch.minimum(keys, following)
        if causal:
            queries = torch.cat([keys[:, :common], queries[:, common:]], dim=1)
    return queries.cummax(1).values, keys.cummax(1).values  # (B, L_Q), (B, L_K)


class SegmentPieces(NamedTuple):
    """A sequence cut into N pieces of one segment each, at most C positions long.

    start      (B, N) long, the first position; L in the pieces that a shorter row lacks
    positions  (B, N, C) long, those past the end of the piece among them, at most L - 1
    valid      (B, N, C) bool, whether the position belongs to the piece
    segment    (B, N) long, the segment number
    """

    start: Tensor
    positions: Tensor
    valid: Tensor
    segment: Tensor


def cut_segments(segments: Tensor, chunk: int) -> SegmentPieces:
    """Cut rows of clean segment numbers (B, L) at each border and every `chunk` positions after one."""
    batch, length = segments.shape
    position = torch.arange(length, device=segments.device).expand(batch, -1)  # (B, L)
    border = torch.ones_like(segments, dtype=torch.bool)
    border[:, 1:] = segments[:, 1:] != segments[:, :-1]
    offset = position - position.masked_fill(~border, 0).cummax(1).values  # (B, L), place in the segment
    begins = offset % chunk == 0  # (B, L)
    piece = begins.cumsum(1) - 1  # (B, L)
    count = int(piece[:, -1].max()) + 1
    start = torch.full((batch, count), length, device=segments.device)
    start.scatter_(1, piece, position - offset % chunk)
    size = torch.zeros_like(start).scatter_add_(1, piece, torch.ones_like(piece))  # (B, N)
    steps = torch.arange(chunk, device=segments.device)
    last = start.clamp(max=length - 1)
    return SegmentPieces(
        start=start,
        positions=(start[:, :, None] + steps).clamp(max=length - 1),
        valid=steps < size[:, :, None],
        segment=segments.gather(1, last),
    )


def take_positions(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (B, H, L, n) by position: index (B, ...) long, the same for all heads; (B, H, ..., n)."""
    batch, heads, length, size = x.shape
    row = torch.arange(batch * heads, device=x.device).view(batch, heads, 1) * length
    flat = (row + index.flatten(1)[:, None]).flatten()  # (B H M,)
    return x.reshape(-1, size).index_select(0, flat).view(batch, heads, *index.shape[1:], size)
