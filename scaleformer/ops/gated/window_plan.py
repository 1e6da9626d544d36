"""Which keys are near to which queries: for each chunk of queries a window of whole chunks of keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.gate import far_scale

# Scores of a block: they bound memory, and are so many that calls cost little beside work.
SCORE_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 27}


@dataclass(frozen=True)
class WindowBlock:
    """M chunks of queries and their windows.

    start   the first chunk
    chunks  M
    first   (M, B) long, where the window of each begins; perhaps before 0
    width   w, chunks in a window; it may reach past the end
    begin   what `first` is for the first chunk, if the windows of all rows lie one chunk after the other; else None
    own     where in the window the chunk of the queries itself is; 0 where queries and keys do not share positions
    """

    start: int
    chunks: int
    first: Tensor
    begin: int | None
    width: int
    own: int


@dataclass(frozen=True)
class WindowPlan:
    """Blocks; segments of queries and keys (B, N C), padded; scale (B, N C), that of what is far to each query."""

    blocks: list[WindowBlock]
    query_segments: Tensor
    key_segments: Tensor
    scale: Tensor
    key_chunks: int


def window_bounds(
    query_segments: Tensor, key_segments: Tensor, reach: int, horizon: int, aligned: bool, causal: bool, chunk: int
) -> tuple[Tensor, Tensor]:
    """The first chunk of keys in the window of each chunk of queries and the first one after it: (B, N) each.

    A window has every key less than `reach` segments from some query of the chunk. If queries and keys share positions
    (`aligned`), it has the chunk itself and what is less than `horizon` positions from it; causal windows end with it.
    """
    lowest, highest = query_segments[:, ::chunk], query_segments[:, chunk - 1 :: chunk]  # (B, N)
    begin = torch.searchsorted(key_segments, lowest - reach, right=True)
    first = begin // chunk
    end = -(-torch.maximum(torch.searchsorted(key_segments, highest + reach), begin) // chunk)
    if aligned:
        number = torch.arange(lowest.shape[1], device=lowest.device)
        margin = -(-max(horizon - 1, 0) // chunk)
        first = torch.minimum(first, number - margin)
        end = (number + 1).expand_as(first) if causal else torch.maximum(end, number + 1 + margin)
    return first, end


def plan_windows(
    query_segments: Tensor,
    key_segments: Tensor,
    real: Tensor,
    reach: int,
    horizon: int,
    aligned: bool,
    causal: bool,
    far_tokens: float,
    chunk: int,
    heads: int,
    dtype: torch.dtype,
) -> WindowPlan:
    """Plan for clean segments (B, L_Q), (B, L_K); real (B, L_K) bool."""
    batch = query_segments.shape[0]
    queries, keys = (
        torch.cat([x, x[:, -1:].expand(-1, -x.shape[1] % chunk)], dim=1) for x in (query_segments, key_segments)
    )
    first, end = window_bounds(queries, key_segments, reach, horizon, aligned, causal, chunk)  # (B, N)

    counts = functional.pad(real.cumsum(1), (1, 0))  # (B, L_K+1), real keys before each position
    far = counts.gather(1, torch.searchsorted(key_segments, queries - reach, right=True))
    if not causal:
        far = far + counts[:, -1:] - counts.gather(1, torch.searchsorted(key_segments, queries + reach))

    limit = SCORE_NUMBERS.get(queries.device.type, SCORE_NUMBERS["cuda"]) // (batch * heads * chunk * chunk)
    blocks = _group(first, end, aligned, limit)
    return WindowPlan(blocks, queries, keys, far_scale(far, far_tokens, dtype), keys.shape[1] // chunk)


def _group(first: Tensor, end: Tensor, aligned: bool, limit: int) -> list[WindowBlock]:
    """Blocks of consecutive chunks with windows of one width, at most `limit` chunks of keys in all of them."""
    batch, total = first.shape
    number = torch.arange(total, device=first.device)
    back = (number - first).max(0).values.tolist()  # how far the window of a chunk reaches back, in any row
    forth = (end - number).max(0).values.tolist()
    widths = [b + f for b, f in zip(back, forth, strict=True)] if aligned else (end - first).max(0).values.tolist()
    blocks: list[WindowBlock] = []
    start = 0
    while start < total:
        stop, needed = start + 1, widths[start]
        while stop < total:
            width = _joint_width(back, forth, widths, aligned, start, stop + 1)
            needed += widths[stop]
            # A chunk with a much wider window than its neighbours gets a block of its own.
            if (stop + 1 - start) * width > min(limit, 1.25 * needed + 2):
                break
            stop += 1
        own = max(back[start:stop]) if aligned else 0
        begin = number[start:stop, None] - own if aligned else first[:, start:stop].t()  # (M, B)
        width = max(_joint_width(back, forth, widths, aligned, start, stop), 1)
        consecutive = start - own if aligned else None
        blocks.append(WindowBlock(start, stop - start, begin.expand(-1, batch), consecutive, width, own))
        start = stop
    return blocks


def _joint_width(back: list[int], forth: list[int], widths: list[int], aligned: bool, start: int, stop: int) -> int:
    return max(back[start:stop]) + max(forth[start:stop]) if aligned else max(widths[start:stop])
