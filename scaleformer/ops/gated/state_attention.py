"""Segment-gated attention by states: its plan, and the tables of the relative term, around `StateAttention`."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import bidirectional_table, causal_tables
from scaleformer.ops.gated.state_blocks import StateOptions
from scaleformer.ops.gated.state_plan import plan_states
from scaleformer.ops.gated.states import StateAttention

# Numbers in an operand of a step: they bound memory, and are so many that calls cost little beside work.
BLOCK_NUMBERS = {"cpu": 1 << 21, "cuda": 1 << 24}


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
    """Arguments as in `segment_gated_attention`, but clean segments and phi(rel), (1 or H, 2R+1, d).

    With relative positions, and in causal attention, queries and keys are of one sequence and its segments.
    """
    places = BLOCK_NUMBERS.get(q.device.type, BLOCK_NUMBERS["cuda"]) // max(q.shape[3], v.shape[3])
    plan = plan_states(
        query_segments, key_segments, key_mask, log_gate.shape[1] // 2, causal, far_tokens, (chunk, chunk),
        q.shape[1], max(places, 1), dtype,
    )  # fmt: skip
    shift, table = None, None
    if frel is not None and causal:
        shift, table = causal_tables(frel)
    elif frel is not None:
        *band, before, shift = bidirectional_table(frel).split([frel.shape[1] - 2, 1, 1], dim=1)
        table = torch.cat([*band, before - shift], dim=1)
    options = StateOptions(plan, phi, causal, dtype)
    out: Tensor = StateAttention.apply(q, k, v, shift, table, log_gate.exp(), options)
    return out
