"""States of step-wise attention with recall at several positions of a given text, computed together."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.recall.decoding import RecallCausalState, recall_causal_init
from scaleformer.ops.recall.selection import RankedKeys, ends_of
from scaleformer.ops.segments.layout import NO_SEGMENT


@torch.no_grad()
def recall_causal_states(
    k: Tensor,
    v: Tensor,
    salience: Tensor,
    segments: Tensor,
    starts: Tensor,
    log_gate: Tensor,
    recency: Tensor,
    kept: int = 64,
) -> RecallCausalState:
    """The states of one text before several of its tokens, a row each: as if stepped through all earlier tokens.

    k (H, L, d), v (H, L, e), salience (H, L), segments (L,) never decreasing; starts (n,) long, positions from 0 to L.
    Rows shift their positions so that all are at the same one.
    """
    heads, length, d = k.shape
    state = recall_causal_init(len(starts), heads, d, v.shape[2], log_gate, recency, kept, k.device, salience.dtype)
    if length == 0 or len(starts) == 0:
        return state
    last = segments[(starts - 1).clamp(min=0)]  # (n,)
    first = torch.searchsorted(segments, last - state.near)  # (n,) of the near tokens
    first = torch.where(starts > 0, first, 0)
    most = int((starts - first).max())
    state.position = most
    while state.numbers.shape[1] < most:
        state.make_room()
    state.start = most - (starts - first)
    state.segment = torch.where(starts > 0, last, NO_SEGMENT)
    near = (starts[:, None] - most + torch.arange(most, device=k.device)).clamp(min=0)  # (n, P)
    ranked = RankedKeys((salience + recency[:, None] * segments.to(salience))[None], None, kept, after=False)
    ranks = ranked.among(ends_of(first[None], length))[0].transpose(0, 1).flip(2)  # (n, H, M), the highest last
    far = ranked.positions(ranks.transpose(0, 1)[None])[0].transpose(0, 1)  # (n, H, M)
    none = ranks < 0
    head = torch.arange(heads, device=k.device)[:, None]
    for table, x in zip(state.pairs, (k, v), strict=True):
        width = x.shape[2]
        table[:kept, ..., :width] = x[head, far].masked_fill(none[..., None], 0.0).permute(2, 0, 1, 3)
        table[kept : kept + most, ..., :width] = x[:, near].permute(2, 1, 0, 3)
    saliences = salience[head, far]  # (n, H, M)
    state.salience[:kept] = saliences.permute(2, 0, 1)
    state.salience[kept : kept + most] = salience[:, near].permute(2, 1, 0)
    state.kept_position = (far - (starts[:, None, None] - most)).masked_fill(none, 0)
    state.priority = (saliences + recency[:, None] * segments[far].to(saliences)).masked_fill(none, float("-inf"))
    state.bias[:, :, :kept] = (saliences + state.log_gate[:, :1]).masked_fill(none, float("-inf"))
    state.numbers[:] = state.segment[:, None]
    state.numbers[:, :most] = segments[near]
    distance = (state.numbers[:, :most] - state.segment[:, None]).clamp(-state.near, 0)
    gate = state.log_gate[:, distance + state.near + 1].transpose(0, 1)  # (n, H, P)
    hidden = torch.arange(most, device=k.device) < state.start[:, None]
    state.bias[:, :, kept : kept + most] = gate.masked_fill(hidden[:, None], float("-inf"))
    state.used = int((~none).sum(2).max())
    state.newest = int(state.kept_position.masked_fill(none, -1).max())
    return state
