"""Segment-gated attention by states: what is small, by automatic differentiation, around `StateAttention`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.relative_position import bidirectional_table, causal_tables
from scaleformer.ops.segment_plan import Pieces, take_positions
from scaleformer.ops.segment_state_blocks import StateOptions
from scaleformer.ops.segment_state_plan import plan_states
from scaleformer.ops.segment_states import StateAttention
from scaleformer.ops.segment_weights import far_scale, scaled_gate
from scaleformer.ops.stepwise import values_with_ones

# Numbers in an operand of a block: on a CPU some of them share the cache, on a GPU they only bound memory.
BLOCK_NUMBERS = {"cpu": 1 << 17, "cuda": 1 << 24}


def state_attention(
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
    chunk: int,
    dtype: torch.dtype,
) -> Tensor:
    """Arguments as in `segment_gated_attention`, but clean segments, exp(log_gate) and phi(rel), (1 or H, 2R+1, d).

    With relative positions, and in causal attention, queries and keys are of one sequence and its segments.
    """
    reach = log_gate.shape[1] // 2
    places = BLOCK_NUMBERS.get(q.device.type, BLOCK_NUMBERS["cuda"]) // (q.shape[1] * max(q.shape[3], v.shape[3]))
    plan = plan_states(query_segments, key_segments, reach, causal, chunk, places)
    assert plan.queries is plan.keys or (frel is None and not causal)
    real = torch.ones_like(key_segments, dtype=torch.bool) if key_mask is None else key_mask
    counts = functional.pad(real.cumsum(1), (1, 0))  # (B, L_K+1), real keys before each position
    far = counts.gather(1, torch.searchsorted(key_segments, plan.queries.segment - reach, right=True))  # (B, N)
    if not causal:
        after = counts.gather(1, torch.searchsorted(key_segments, plan.queries.segment + reach))
        far = far + counts[:, -1:] - after
    weights = scaled_gate(log_gate.exp(), far_scale(far, far_tokens, dtype))  # (B, H, N, 2G+1)
    shift, table, beyond = None, None, None
    if frel is not None and causal:
        shift, table = causal_tables(frel)
    elif frel is not None:
        table = bidirectional_table(frel)
        beyond = _beyond(values_with_ones(v.to(dtype), key_mask), weights, plan.keys, chunk)
    options = StateOptions(plan, phi, causal, key_mask, dtype)
    out: Tensor = StateAttention.apply(q, k, v, shift, table, weights, beyond, options)
    return out


def _beyond(u: Tensor, weights: Tensor, pieces: Pieces, chunk: int) -> Tensor:
    """The weighed sums of U over the pieces before each piece and over those after it: (B, H, N, 2, e+1).

    Prefix sums in float64, so that a sum over a range may be a difference of two of them.
    """
    (batch, heads), count, reach = u.shape[:2], pieces.start.shape[1], weights.shape[3] // 2
    row = torch.arange(batch * heads, device=u.device).view(batch, heads, 1) * count
    rows = (row + (pieces.place // chunk)[:, None]).flatten()  # (B H L,)
    by_piece = u.new_zeros(batch * heads * count, u.shape[3]).index_add(0, rows, u.flatten(0, 2))
    prefix = by_piece.view(batch, heads, count, -1).double().cumsum(2)
    prefix = functional.pad(prefix, (0, 0, 1, 0))  # (B, H, N+1, e+1)
    number = torch.arange(count, device=u.device)[:, None]  # (N, 1)
    steps = torch.arange(1 - reach, reach + 1, device=u.device)
    borders = torch.searchsorted(pieces.segment, (pieces.segment[:, :, None] + steps).flatten(1))  # of one weight
    borders = functional.pad(borders.view(batch, count, 2 * reach), (1, 0))
    borders = functional.pad(borders, (0, 1), value=count)  # (B, N, 2G+2)
    ranges = torch.stack([borders.minimum(number), borders.maximum(number + 1)], dim=2)  # (B, N, 2, 2G+2)
    sums = take_positions(prefix, ranges).diff(dim=4).to(u.dtype)  # (B, H, N, 2, 2G+1, e+1)
    return (weights[:, :, :, None, None] @ sums).squeeze(4)  # (B, H, N, 2, e+1)
