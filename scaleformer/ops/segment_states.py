"""Segment-gated attention in linear time by one state for each segment: for long segments.

A_s = sum of phi(K) (x) U over segment s, U = [V, 1]. A query of segment t sees A'_t = sum_s w_t(s - t) A_s, the near
segments one by one and the far ones by a prefix and a suffix sum; pieces of one segment, at most C positions long, make
all of it matrix products. The relative term needs sums of U alone: over the keys before a piece and after it, weighed
by segment, and a window for the band of the horizon. In causal attention the keys are shifted by b = phi(rel_0)
instead, A'_t is over s < t, and the own segment is chunked as in `causal`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.relative_position import bidirectional_table, causal_tables, skew
from scaleformer.ops.segment_mixing import MixSegments
from scaleformer.ops.segment_plan import Pieces, cut_segments, take_positions
from scaleformer.ops.segment_weights import far_scale, scaled_gate
from scaleformer.ops.stepwise import values_with_ones, without_pads
from scaleformer.ops.sums import normalise


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
    """Arguments as in `segment_gated_attention`, but clean segments, exp(log_gate) and phi(rel), (1 or H, 2R+1, d)."""
    gate, reach = log_gate.exp(), log_gate.shape[1] // 2
    real = torch.ones_like(key_segments, dtype=torch.bool) if key_mask is None else key_mask
    fq, fk = phi(q.to(dtype)), phi(without_pads(k, key_mask).to(dtype))
    u = values_with_ones(v.to(dtype), key_mask)  # (B, H, L_K, e+1)
    if causal and frel is not None:
        fk = fk + frel[:, :1]

    key_pieces = cut_segments(key_segments, chunk)
    query_pieces = key_pieces if causal else cut_segments(query_segments, chunk)
    fq, fk = take_positions(fq, query_pieces.positions), take_positions(fk, key_pieces.positions)  # (B, H, N, C, d)
    own_u = take_positions(u, key_pieces.positions) * key_pieces.valid[:, None, :, :, None]  # (B, H, N, C, e+1)
    states = fk.transpose(-1, -2) @ own_u  # (B, H, N, d, e+1)

    # How many real keys are far from each query piece.
    counts = functional.pad(real.cumsum(1), (1, 0))  # (B, L_K+1), real keys before each position
    far_count = counts.gather(1, torch.searchsorted(key_segments, query_pieces.segment - reach, right=True))  # (B, N)
    if not causal:
        after = counts.gather(1, torch.searchsorted(key_segments, query_pieces.segment + reach))
        far_count = far_count + counts[:, -1:] - after
    scale = far_scale(far_count, far_tokens, dtype)  # (B, N)

    mixed = _mix(states, log_gate, scale, key_pieces, query_pieces, causal)  # (B, H, N, d, e+1)
    continues = key_pieces.run[:, 1:] == key_pieces.run[:, :-1]  # (B, N-1)
    if causal and continues.any():
        mixed = mixed + gate[:, reach, None, None, None] * _RunningSums.apply(states, functional.pad(continues, (1, 0)))
    sums = fq @ mixed  # (B, H, N, C, e+1)
    if causal and frel is None:
        scores = (fq @ fk.transpose(-1, -2)).tril() * gate[:, reach, None, None, None]  # (B, H, N, C, C)
        sums = _add_product(sums, scores, own_u)
    elif frel is not None:
        weights = scaled_gate(gate, scale)  # (B, H, N, 2G+1)
        if causal:
            near = causal_tables(frel)[1]  # (1 or H, R, d)
            head, width = near.shape[1] - 1, near.shape[1] - 1 + chunk
            own = (fq @ fk.transpose(-1, -2)).tril()  # (B, H, N, C, C)
            scores = skew(fq @ near[:, None].transpose(-1, -2), width) + functional.pad(own, (head, 0))
        else:
            table = bidirectional_table(frel)  # (1 or H, 2R+1, d)
            head = (table.shape[1] - 3) // 2
            width = 2 * head + chunk
            by_distance = fq @ table[:, None].transpose(-1, -2)  # (B, H, N, C, 2R+1)
            past = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
            own = torch.where(past, by_distance[..., -2:-1], by_distance[..., -1:])  # (B, H, N, C, C)
            own = own.masked_fill(~query_pieces.valid[:, None, :, None], 0.0)
            scores = skew(by_distance[..., :-2], width) + functional.pad(own, (head, head))
            sums = _add_product(sums, by_distance[..., -2:], _beyond(own_u, weights, query_pieces))
        window, column_weights = _window(u, weights, key_segments, query_pieces, head, width)
        sums = _add_product(sums, scores * column_weights.unsqueeze(3), window)
    return take_positions(normalise(sums).flatten(2, 3), query_pieces.place).to(v.dtype)  # (B, H, L_Q, e)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + left @ right, without a tensor in between."""
    out = torch.baddbmm(total.flatten(0, 2), left.flatten(0, 2), right.flatten(0, 2))
    return out.view(total.shape)


def _window(
    u: Tensor, weights: Tensor, segments: Tensor, pieces: Pieces, before: int, width: int
) -> tuple[Tensor, Tensor]:
    """U around each piece, from `before` positions before it (B, H, N, width, e+1), and its weights, without e+1."""
    length, reach = u.shape[2], weights.shape[3] // 2
    position = pieces.start[:, :, None] - before + torch.arange(width, device=u.device)  # (B, N, W)
    inside = (position >= 0) & (position < length)
    position = position.clamp(0, length - 1)
    distance = segments.gather(1, position.flatten(1)).view_as(position) - pieces.segment[:, :, None]  # (B, N, W)
    column = (distance.clamp(-reach, reach) + reach)[:, None].expand(-1, u.shape[1], -1, -1)
    return take_positions(u, position), weights.gather(3, column) * inside[:, None]


def _beyond(own_u: Tensor, weights: Tensor, pieces: Pieces) -> Tensor:
    """The weighed sums of U over the pieces before each piece and over those after it: (B, H, N, 2, e+1).

    Prefix sums in float64, so that a sum over a range may be a difference of two of them.
    """
    count, reach = own_u.shape[2], weights.shape[3] // 2
    prefix = functional.pad(own_u.sum(3).double().cumsum(2), (0, 0, 1, 0))  # (B, H, N+1, e+1)
    number = torch.arange(count, device=own_u.device)[:, None]  # (N, 1)
    steps = torch.arange(1 - reach, reach + 1, device=own_u.device)
    borders = torch.searchsorted(pieces.segment, (pieces.segment[:, :, None] + steps).flatten(1))  # of one weight
    borders = functional.pad(borders.view(-1, count, 2 * reach), (1, 0))
    borders = functional.pad(borders, (0, 1), value=count)  # (B, N, 2G+2)
    ranges = torch.stack([borders.minimum(number), borders.maximum(number + 1)], dim=2)  # (B, N, 2, 2G+2)
    sums = take_positions(prefix, ranges).diff(dim=4)  # (B, H, N, 2, 2G+1, e+1)
    return (weights[:, :, :, None, None].to(sums.dtype) @ sums).squeeze(4).to(own_u.dtype)  # (B, H, N, 2, e+1)


class _RunningSums(torch.autograd.Function):
    """For each piece the sum of the states (B, H, N, d, e+1) of the pieces before it in the same segment."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, continues: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(continues)
        out = torch.zeros_like(states)
        for n in range(1, states.shape[2]):
            if continues[:, n].any():
                keep = continues[:, n, None, None, None]
                out[:, :, n] = (out[:, :, n - 1] + states[:, :, n - 1]) * keep
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (continues,) = ctx.saved_tensors
        out = torch.zeros_like(grad)
        for n in range(grad.shape[2] - 1, 0, -1):
            if continues[:, n].any():
                later = out[:, :, n] if n + 1 < grad.shape[2] else 0.0
                out[:, :, n - 1] = (grad[:, :, n] + later) * continues[:, n, None, None, None]
        return out, None


def _mix(states: Tensor, log_gate: Tensor, scale: Tensor, keys: Pieces, queries: Pieces, causal: bool) -> Tensor:
    """A'_t for each query piece (B, H, N, d, e+1), from the states of the key pieces; causal: of s < t alone."""
    by_segment, numbers = _by_segment(states, keys.run, keys.segment)
    if bool((queries.run[:, 1:] > queries.run[:, :-1]).all()):
        mixed = MixSegments.apply(by_segment, log_gate, numbers, queries.segment, scale, causal)
        return mixed.unflatten(3, states.shape[3:])
    # Several pieces of one segment share A'_t.
    runs = int(queries.run.max()) + 1
    segments = torch.full((states.shape[0], runs), torch.iinfo(torch.long).max // 2, device=states.device)
    segments.scatter_(1, queries.run, queries.segment)
    scales = scale.new_ones(segments.shape).scatter_(1, queries.run, scale)
    mixed = MixSegments.apply(by_segment, log_gate, numbers, segments, scales, causal)
    return take_positions(mixed, queries.run).unflatten(3, states.shape[3:])


def _by_segment(states: Tensor, run: Tensor, segment: Tensor) -> tuple[Tensor, Tensor]:
    """The states of pieces (B, H, N, d, e+1) summed by segment (B, H, S, d (e+1)), and the numbers of these (B, S)."""
    batch, heads, pieces = states.shape[:3]
    runs = int(run.max()) + 1
    numbers = torch.full((batch, runs), torch.iinfo(torch.long).max // 2, device=states.device)
    numbers.scatter_(1, run, segment)
    if runs == pieces and batch == 1:
        return states.flatten(3), numbers
    row = torch.arange(batch * heads, device=states.device).view(batch, heads, 1) * runs
    rows = (row + run[:, None]).flatten()
    sums = states.new_zeros(batch * heads * runs, *states.shape[3:]).index_add(0, rows, states.flatten(0, 2))
    return sums.view(batch, heads, runs, -1), numbers
