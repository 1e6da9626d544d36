"""States of step-wise attention with recall at several positions of given texts, computed together."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.recall.decoding import RecallCausalState, recall_causal_init
from scaleformer.ops.recall.selection import RankedKeys, ends_of
from scaleformer.ops.segments.layout import NO_SEGMENT


@torch.no_grad()
def recall_causal_states(
    k: Tensor, v: Tensor, salience: Tensor, segments: Tensor, texts: Tensor, starts: Tensor, log_gate: Tensor,
    recency: Tensor, kept: int = 64,
) -> RecallCausalState:  # fmt: skip
    """The states of texts before several of their tokens, a row each: as if stepped through all earlier tokens.

    k (B, H, L, d), v (B, H, L, e), salience (B, H, L), segments (B, L) never decreasing; texts (n,) long, which text
    each row goes on with; starts (n,) long, from which position, 0 to L. Rows shift their positions so that all are at
    the same one. What stands after the positions, such as pads, does not count. Several rows of one position are beams:
    `reorder` may exchange these only, or drop rows.
    """
    _, heads, length, d = k.shape
    state = recall_causal_init(len(starts), heads, d, v.shape[3], log_gate, recency, kept, k.device, salience.dtype)
    if length == 0 or len(starts) == 0:
        return state
    last = segments[texts, (starts - 1).clamp(min=0)]  # (n,)
    first = torch.searchsorted(segments[texts], (last - state.near)[:, None])[:, 0]  # (n,) of the near tokens
    first = torch.where(starts > 0, first, 0)
    most = int((starts - first).max())
    state.position = most
    while state.numbers.shape[1] < most:
        state.make_room()
    state.start = most - (starts - first)
    state.segment = torch.where(starts > 0, last, NO_SEGMENT)
    near = (starts[:, None] - most + torch.arange(most, device=k.device)).clamp(min=0)  # (n, P)
    ranks, far = _kept(salience + recency[:, None] * segments[:, None].to(salience), texts, first, kept)
    none = ranks < 0
    text, head = texts[:, None, None], torch.arange(heads, device=k.device)[:, None]
    for table, x in zip(state.pairs, (k, v), strict=True):
        width = x.shape[3]
        table[:kept, ..., :width] = x[text, head, far].masked_fill(none[..., None], 0.0).permute(2, 0, 1, 3)
        table[kept : kept + most, ..., :width] = x.transpose(1, 2)[texts[:, None], near].transpose(0, 1)
    saliences = salience[text, head, far]  # (n, H, M)
    state.salience[:kept] = saliences.permute(2, 0, 1)
    state.salience[kept : kept + most] = salience.transpose(1, 2)[texts[:, None], near].transpose(0, 1)
    state.kept_position = (far - (starts[:, None, None] - most)).masked_fill(none, 0)
    toward = recency[:, None] * segments[text, far].to(saliences)
    state.priority = (saliences + toward).masked_fill(none, float("-inf"))
    state.bias[:, :, :kept] = (saliences + state.log_gate[:, :1]).masked_fill(none, float("-inf"))
    state.numbers[:] = state.segment[:, None]
    state.numbers[:, :most] = segments[texts[:, None], near]
    distance = (state.numbers[:, :most] - state.segment[:, None]).clamp(-state.near, 0)
    gate = state.log_gate[:, distance + state.near + 1].transpose(0, 1)  # (n, H, P)
    hidden = torch.arange(most, device=k.device) < state.start[:, None]
    state.bias[:, :, kept : kept + most] = gate.masked_fill(hidden[:, None], float("-inf"))
    state.used, state.fresh = int((~none).sum(2).max()), True
    if kept:
        state.newest = int(state.kept_position.masked_fill(none, -1).max())
    return state


def _kept(priority: Tensor, texts: Tensor, first: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """The ranks and the positions, (n, H, M) each and the highest last, of the kept tokens among those before `first`
    (n,) in `texts` (n,); priority (B, H, L)."""
    B, heads, length = priority.shape
    if kept == 0:
        return (texts.new_zeros(len(texts), heads, 0),) * 2
    ranked = RankedKeys(priority, None, kept, after=False)
    rows = torch.zeros(B, int(texts.bincount(minlength=B).max()), dtype=torch.long, device=texts.device)  # (B, E)
    order = texts.argsort(stable=True)
    counts = texts.bincount(minlength=B)
    place = torch.empty_like(texts)
    place[order] = torch.arange(len(texts), device=texts.device) - (counts.cumsum(0) - counts)[texts[order]]
    rows[texts, place] = first
    ranks = ranked.among(ends_of(rows, length))  # (B, H, E, M)
    positions = ranked.positions(ranks)
    return tuple(x[texts, :, place].flip(2) for x in (ranks, positions))  # type: ignore[return-value]
