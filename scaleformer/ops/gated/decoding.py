"""Step-wise segment-gated attention, for decoding: a step never reads earlier tokens again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_gate, check_positive, check_step_segments
from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.sums import normalise
from scaleformer.ops.kernel.decoding import CausalState, causal_init
from scaleformer.ops.segments.gate import far_scale
from scaleformer.ops.segments.layout import NO_SEGMENT


@dataclass
class SegmentCausalState:
    """Decoding state of causal segment-gated attention.

    A_s is the sum of (phi(k) + b) (x) U over segment s, U = [V, 1], b = phi(rel_0); t is the segment of the last token.
    A step reads and writes one matrix a head, whatever the reach: when t begins, all earlier segments, weighted as seen
    from t, are added to it. `past` and `recent`, needed when the next segment begins, are not copied when rows are
    reordered: rows refer to them, and several rows may refer to the same entry.

    tokens         `CausalState`: its memory is g(0) A_t + past; its ring and tables are those of
                   `relative_kernel_attention`
    held           (B,) long, the row of `past` and `recent` that each row refers to
    past           (B, H, d, e+1) sum of the earlier segments, each times its gate as seen from t, the far ones scaled
    recent         (B, G, H, d, e+1) A_(t-1) .. A_(t-G+1), then the sum of all earlier segments
    counts         (B, G+1) token counts of t so far and of the entries of `recent`, by row
    segment        (B,) long, t
    ring_segments  (B, R) long, the segments of the tokens in the ring; None without relative positions
    ring_gate      (B, H, R) their gates as seen from t; None without relative positions
    gate           (H, 2G+1)
    far_tokens     the weight of all far keys together, at most, in tokens
    """

    tokens: CausalState
    held: Tensor
    past: Tensor
    recent: Tensor
    counts: Tensor
    segment: Tensor
    ring_segments: Tensor | None
    ring_gate: Tensor | None
    gate: Tensor
    far_tokens: float

    @property
    def own_gate(self) -> Tensor:
        """g(0): (H, 1, 1)."""
        return self.gate[:, self.gate.shape[1] // 2, None, None]

    def reorder(self, index: Tensor) -> SegmentCausalState:
        """The state whose row b is this one's row index[b]; index (B',) long."""
        held, past, recent = self.held.index_select(0, index), self.past, self.recent
        if len(index) != len(past):
            past, recent = past.index_select(0, held), recent.index_select(0, held)
            held = torch.arange(len(index), device=held.device)
        return replace(
            self,
            tokens=self.tokens.reorder(index),
            held=held,
            past=past,
            recent=recent,
            counts=self.counts.index_select(0, index),
            segment=self.segment.index_select(0, index),
            ring_segments=None if self.ring_segments is None else self.ring_segments.index_select(0, index),
            ring_gate=None if self.ring_gate is None else self.ring_gate.index_select(0, index),
        )


@torch.no_grad()
def segment_causal_init(
    batch: int,
    heads: int,
    d: int,
    e: int,
    rel: Tensor | None,
    log_gate: Tensor,
    device: torch.device | str | None = None,
    far_tokens: float = 20,
    feature_map: str = "elu1",
    dtype: torch.dtype = torch.float32,
) -> SegmentCausalState:
    """The state before the first token; rel (2R+1, d) or (H, 2R+1, d), raw, or None; log_gate (H, 2G+1)."""
    check_gate(log_gate, heads)
    check_positive("far_tokens", far_tokens)
    tokens = causal_init(batch, heads, d, e, rel, device, feature_map, dtype)
    memory, reach = tokens.memory, (log_gate.shape[1] - 1) // 2
    counts = memory.new_zeros(batch, reach + 1)
    ring_segments, ring_gate = None, None
    if tokens.ring is not None:
        horizon = tokens.ring.shape[2]
        ring_segments = torch.full((batch, horizon), NO_SEGMENT, device=memory.device)
        ring_gate = memory.new_zeros(batch, heads, horizon)
    return SegmentCausalState(
        tokens=tokens,
        held=torch.arange(batch, device=memory.device),
        past=torch.zeros_like(memory),
        recent=memory.new_zeros(batch, reach, heads, d, e + 1),
        counts=counts,
        segment=torch.full((batch,), NO_SEGMENT, device=memory.device),
        ring_segments=ring_segments,
        ring_gate=ring_gate,
        gate=log_gate.to(memory).exp(),
        far_tokens=far_tokens,
    )


@torch.no_grad()
def segment_causal_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None,
    segments: Tensor,
    state: SegmentCausalState,
    feature_map: str = "elu1",
) -> tuple[Tensor, SegmentCausalState]:
    """Attention of one new token to itself and those before it.

    q, k (B, H, d), v (B, H, e); segments (B,) the segment of the token in each row; rel as given to
    `segment_causal_init`. Returns (B, H, e) in the dtype of v and the state, which is updated in place. Raises
    ValueError if they do not fit the state.
    """
    state.tokens.check(q, k, v, rel)
    check_step_segments(segments, q.shape[0])
    phi = get_feature_map(feature_map)
    rows = (segments > state.segment).nonzero().flatten()
    with torch.autocast(q.device.type, enabled=False):
        if rows.numel() > 0:
            _advance(state, segments.to(state.segment), rows)
        tokens, own = state.tokens, state.own_gate
        fq = phi(q.to(state.past.dtype))[:, :, None]  # (B, H, 1, d)
        tokens.add(k, v, phi, own)
        state.counts[:, 0] += 1
        if state.ring_segments is not None and state.ring_gate is not None:
            slot = tokens.position % state.ring_segments.shape[1]
            state.ring_segments[:, slot] = state.segment
            state.ring_gate[:, :, slot] = own[:, 0, 0]
        out = normalise(tokens.read(fq, state.ring_gate)).view(v.shape).to(v.dtype)  # (B, H, e)
    return out, replace(state, tokens=replace(tokens, position=tokens.position + 1))


def _advance(state: SegmentCausalState, segments: Tensor, rows: Tensor) -> None:
    """Begin a new segment in `rows`, in place: the sums of earlier segments move on by one distance or more."""
    reach, memory, held = state.recent.shape[1], state.tokens.memory, state.held[rows]
    recent, counts = state.recent[held], state.counts[rows]
    last = (memory[rows] - state.past[held]) / state.own_gate  # (r, H, d, e+1)
    steps = (segments - state.segment)[rows].clamp(max=reach)  # (r,)
    # A 0/1 matrix by row: where the sums at distance 0 .. G-1 go; the far sum stays in place.
    target = (torch.arange(reach + 1, device=rows.device) + steps[:, None]).clamp(max=reach)  # (r, G+1)
    move = functional.one_hot(target - 1, reach).transpose(1, 2).to(counts.dtype)  # (r, G, G+1)
    known = torch.cat([last[:, None], recent], dim=1)  # (r, G+1, H, d, e+1)
    recent = (move @ known.flatten(2)).view_as(recent)  # (r, G, H, d, e+1)
    state.counts[rows] = functional.pad((move @ counts.unsqueeze(-1)).squeeze(-1), (1, 0))  # (r, G+1)
    state.segment[rows] = segments[rows]
    past = _look_back(state, rows, recent)
    free = _free(state.held, rows)
    state.held[rows], state.past[free], state.recent[free], memory[rows] = free, past, recent, past


def _free(held: Tensor, rows: Tensor) -> Tensor:
    """len(rows) places that no other row refers to; there are always enough."""
    taken, goes_on = torch.zeros_like(held), torch.ones_like(held)
    goes_on[rows] = 0
    taken.index_add_(0, held, goes_on)
    return (taken == 0).nonzero().flatten()[: len(rows)]


def _look_back(state: SegmentCausalState, rows: Tensor, recent: Tensor) -> Tensor:
    """The weighted sum (r, H, d, e+1) of the earlier segments `recent` (r, G, H, d, e+1) of `rows`, as seen from the
    segment that has just begun. Also sets the gates of the ring, in place."""
    reach, gate = recent.shape[1], state.gate
    scale = far_scale(state.counts[rows, -1], state.far_tokens, gate.dtype)[:, None]  # (r, 1)
    weights = gate[:, :reach].flip(1).expand(rows.shape[0], -1, -1).clone()  # (r, H, G), distances -1 .. -G
    weights[:, :, -1] *= scale
    if state.ring_segments is not None and state.ring_gate is not None:
        distance = state.ring_segments[rows] - state.segment[rows, None]  # (r, R)
        near = gate.t()[distance.clamp(min=-reach) + reach]  # (r, R, H)
        near = near * torch.where(distance <= -reach, scale, 1.0)[:, :, None]
        state.ring_gate[rows] = near.transpose(1, 2)  # (r, H, R)
    return torch.einsum("rhg,rghde->rhde", weights, recent)  # (r, H, d, e+1)
