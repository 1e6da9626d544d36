"""Segment-gated attention in linear time: by windows where segments are short, by states where they are long."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.common.blocks import cut
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import horizon_of
from scaleformer.ops.gated.state_attention import state_attention
from scaleformer.ops.gated.window_blocks import WindowOptions
from scaleformer.ops.gated.window_plan import plan_windows, window_bounds
from scaleformer.ops.gated.windows import window_attention
from scaleformer.ops.segments.layout import clean_segments

WINDOW_CHUNK = 32
PIECE_CHUNKS = (16, 24, 32, 48, 64, 96)


class Path(NamedTuple):
    """`windows` or `states`, and the size of its chunks or pieces."""

    name: str
    chunk: int


def linear_segment_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frel: Tensor | None,
    log_gate: Tensor,
    query_segments: Tensor,
    key_segments: Tensor,
    causal: bool,
    key_mask: Tensor | None,
    far_tokens: float,
    phi: FeatureMap,
    dtype: torch.dtype,
    path: Path | None = None,
) -> Tensor:
    """Arguments as in `segment_gated_attention`, but frel = phi(rel) (1 or H, 2R+1, d), log_gate in the type of sums.

    path: None for the one that should be faster.
    """
    queries, keys = clean_segments(query_segments, key_segments, key_mask, causal)
    length = q.shape[2]
    real = torch.ones_like(keys, dtype=torch.bool) if key_mask is None else key_mask
    if causal and k.shape[2] != length:
        k, v, real = cut(k, 0, length), cut(v, 0, length), cut(real[:, None, :, None], 0, length)[:, 0, :, 0]
        key_mask, keys = real, queries
    reach, horizon = log_gate.shape[1] // 2, 0 if frel is None else horizon_of(frel)
    path = path or cheaper_path(queries, keys, reach, horizon, causal, v.shape[3])
    if path.name == "states":
        arguments = (queries, keys, causal, key_mask, far_tokens, phi, path.chunk, dtype)
        return state_attention(q, k, v, frel, log_gate, *arguments)
    aligned = causal or frel is not None
    plan = plan_windows(queries, keys, real, reach, horizon, aligned, causal, far_tokens, path.chunk, q.shape[1], dtype)
    return window_attention(q, k, v, frel, log_gate, key_mask, WindowOptions(plan, phi, path.chunk, causal, dtype))


def cheaper_path(queries: Tensor, keys: Tensor, reach: int, horizon: int, causal: bool, width: int) -> Path:
    """The path that should take less time, by `path_costs`."""
    costs = path_costs(queries, keys, reach, horizon, causal, width)
    return min(costs, key=lambda path: costs[path])


def path_costs(queries: Tensor, keys: Tensor, reach: int, horizon: int, causal: bool, width: int) -> dict[Path, float]:
    """What each path should cost a head, in scores, for clean segments of queries (B, L_Q) and keys (B, L_K).

    By windows a query costs about as much as 150 scores and its scores besides; by states a place in a piece costs
    about 80 + C scores, be it filled or not, a piece 30 e and a segment 10 e. (Measured on a CPU in float32, forward
    and backward.) Of the sizes of pieces the best one stands for `states`.
    States know of positions only within one sequence: relative positions between two need windows.
    """
    same = torch.equal(queries, keys)
    padded = torch.cat([queries, queries[:, -1:].expand(-1, -queries.shape[1] % WINDOW_CHUNK)], dim=1)
    first, end = window_bounds(padded, keys, reach, horizon, causal or horizon > 0, causal, WINDOW_CHUNK)
    by_windows = 150.0 * queries.numel() + float((end - first).sum()) * WINDOW_CHUNK**2
    found = {Path("windows", WINDOW_CHUNK): by_windows}
    if horizon > 0 and not same:
        return found

    lengths = torch.cat([_segment_lengths(side) for side in ([queries] if same else [queries, keys])])
    longest = int(lengths.max())
    parts = {-(-longest // count) for count in range(1, 5)}  # so that a text of equal segments leaves no place empty
    chunks = torch.tensor(sorted({*PIECE_CHUNKS, *(n for n in parts if PIECE_CHUNKS[0] <= n <= PIECE_CHUNKS[-1])}))
    chunks = chunks.to(lengths.device)
    pieces = (-(-lengths // chunks[:, None])).sum(1)  # (chunks,)
    costs = pieces * (chunks * (80.0 + chunks) + 30.0 * width) + 10.0 * width * lengths.shape[0]
    costs = costs if same else costs / 2
    least = int(costs.argmin())
    found[Path("states", int(chunks[least]))] = float(costs[least])
    return found


def _segment_lengths(segments: Tensor) -> Tensor:
    """How many positions each segment of each row has, all in one (segments,)."""
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    start = begins.flatten().nonzero().flatten()  # rows one after the other
    return torch.cat([start, start.new_tensor([segments.numel()])]).diff()
