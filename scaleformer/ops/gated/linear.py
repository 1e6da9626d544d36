"""Segment-gated attention in linear time: sums over segments, mixed by their gates, and a band for near keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.blocks import cut
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import bidirectional_table, causal_tables, skew
from scaleformer.ops.common.sums import normalise
from scaleformer.ops.gated.banded import banded_product, sums_outside
from scaleformer.ops.gated.layout import Pieces, Slots, cut_pieces, from_pieces, make_slots, to_pieces
from scaleformer.ops.kernel.decoding import values_with_ones, without_pads
from scaleformer.ops.segments.layout import SegmentLayout, take_positions

# The most numbers that the sums of all segments may have in a head; beyond it they are computed in blocks. It bounds
# memory.
_MATRIX_NUMBERS = 1 << 22


@dataclass(frozen=True)
class Plan:
    """All that follows from the segment numbers; the same for all heads and both passes.

    shared        whether queries and keys share positions: then both have the same length and the same pieces
    length        that length
    real          (B, L_K) bool; None if all keys are real
    queries, keys (B, L_Q), (B, L_K) long, clean segment numbers
    """

    causal: bool
    shared: bool
    length: int
    real: Tensor | None
    queries: Tensor
    keys: Tensor
    slots: Slots
    query_pieces: Pieces
    key_pieces: Pieces


def linear_segment_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frel: Tensor | None,
    log_gate: Tensor,
    layout: SegmentLayout,
    causal: bool,
    far_tokens: float,
    phi: FeatureMap,
    dtype: torch.dtype,
) -> Tensor:
    """Arguments as in `segment_gated_attention`, but frel = phi(rel) (1 or H, 2R+1, d); log_gate has the dtype of the
    sums, `dtype`."""
    arguments = q.shape[3], causal, causal or frel is not None, log_gate.shape[1] // 2, far_tokens, dtype
    plan = layout.derived(("gated", *arguments), lambda: _plan(layout, *arguments))
    out: Tensor = _Recomputed.apply(partial(_attend, plan, phi, dtype), q, k, v, frel, log_gate)
    return out


def _plan(
    layout: SegmentLayout, width: int, causal: bool, shared: bool, reach: int, far_tokens: float, dtype: torch.dtype
) -> Plan:
    queries, keys = layout.clean(causal)
    real, length = layout.real(), queries.shape[1]
    if shared:
        length = length if causal else max(length, keys.shape[1])
        if real is None and keys.shape[1] < length:
            real = torch.ones_like(keys, dtype=torch.bool)
        real = None if real is None else cut(real[:, None, :, None], 0, length)[:, 0, :, 0]
        queries = _lengthen(queries, length)
        keys = queries if causal else _lengthen(keys, length)
    slots = make_slots(queries, keys, real, reach, far_tokens, causal, dtype)
    query_pieces = cut_pieces(slots, "both" if shared else "queries", width)
    key_pieces = query_pieces if shared else cut_pieces(slots, "keys", width)
    return Plan(causal, shared, length, real, queries, keys, slots, query_pieces, key_pieces)


class _Recomputed(torch.autograd.Function):
    """Keeps the arguments only: backward recomputes the intermediate results, which take about ten times as much."""

    @staticmethod
    def forward(ctx: Any, attend: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.attend = attend
        ctx.save_for_backward(*tensors)
        return attend(*tensors)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        needed = ctx.needs_input_grad[1:]
        tensors = [
            None if x is None else x.detach().requires_grad_(need)
            for x, need in zip(ctx.saved_tensors, needed, strict=True)
        ]
        with torch.enable_grad():
            out = ctx.attend(*tensors)
        found = iter(torch.autograd.grad(out, [x for x in tensors if x is not None and x.requires_grad], grad))
        return None, *(next(found) if need else None for need in needed)


def _attend(
    plan: Plan,
    phi: FeatureMap,
    dtype: torch.dtype,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frel: Tensor | None,
    log_gate: Tensor,
) -> Tensor:
    (batch, heads, length, _), gate = q.shape, log_gate.exp()
    if plan.shared:
        q, k, v = (cut(x, 0, plan.length) for x in (q, k, v))
    fq, fk = phi(q.to(dtype)), phi(without_pads(k, plan.real).to(dtype))  # (B, H, L_Q, d), (B, H, L_K, d)
    u = values_with_ones(v.to(dtype), plan.real)  # (B, H, L_K, e+1)
    if frel is not None:
        fk = fk + frel[:, :1]
    by_distance = None if frel is None else fq @ _table(frel, plan.causal).transpose(1, 2)  # (B, H, L, n)
    fq, fk = to_pieces(fq, plan.query_pieces), to_pieces(fk, plan.key_pieces)  # (X, N, C, d)
    u_pieces = to_pieces(u, plan.key_pieces) * plan.key_pieces.valid_in(heads)  # (X, N, C, e+1)
    sums = _read_all(fq, fk, u_pieces, gate, plan)  # (X N_Q, C, e+1)
    if plan.causal:
        own = gate[:, gate.shape[1] // 2].repeat(batch)[:, None, None, None]  # (X, 1, 1, 1)
        scores = (fq @ fk.transpose(2, 3)).tril() * own  # (X, N, C, C)
        sums.baddbmm_(scores.flatten(0, 1), u_pieces.flatten(0, 1))
    elif by_distance is not None:  # far keys after a query have b so far, like those before it: add a - b
        shift = to_pieces(by_distance[..., -1:], plan.query_pieces)  # (X, N, C, 1)
        by_distance = by_distance[..., :-1]
        own, later = _after(u_pieces, gate, plan.query_pieces, plan.slots)
        scores = shift * own * shift.new_ones(shift.shape[2], shift.shape[2]).triu(1)  # (X, N, C, C)
        sums.baddbmm_(scores.flatten(0, 1), u_pieces.flatten(0, 1))
        sums.addcmul_(shift.flatten(0, 1), later.flatten(0, 1))
    sums = from_pieces(sums.view(*fq.shape[:3], -1), plan.query_pieces).unflatten(0, (batch, heads))
    if by_distance is not None:
        sums = sums + _band(by_distance, u, gate, plan)  # (B, H, L_Q, e+1)
    return normalise(sums[:, :, :length]).to(v.dtype)


def _table(frel: Tensor, causal: bool) -> Tensor:
    """phi(rel) minus b, the row of far keys before the query, by distance: (1 or H, R, d) if causal; else
    (1 or H, 2R, d), whose last row, for all keys after the query, is a - b."""
    if causal:
        return causal_tables(frel)[1]
    near, before, after = bidirectional_table(frel).split([frel.shape[1] - 2, 1, 1], dim=1)
    return torch.cat([near, after - before], dim=1)


def _lengthen(segments: Tensor, length: int) -> Tensor:
    missing = max(length - segments.shape[1], 0)
    return torch.cat([segments[:, :length], segments[:, -1:].expand(-1, missing)], dim=1)  # (B, length)


def _read_all(fq: Tensor, fk: Tensor, u: Tensor, gate: Tensor, plan: Plan) -> Tensor:
    """`_read` for all of u, in blocks of its columns, which are independent. With more than one block the backward pass
    recomputes them, so that many short segments take no more memory than a few long ones."""
    segments, size = fk.shape[1], u.shape[3]
    columns = max(1, _MATRIX_NUMBERS // (segments * fk.shape[3]))
    if columns >= size:
        return _read(fq, fk, u, gate, plan)
    blocks = -(-size // columns)
    parts = u.tensor_split(blocks, dim=3)
    return torch.cat([checkpoint(_read, fq, fk, part, gate, plan, use_reentrant=False) for part in parts], dim=2)


def _read(fq: Tensor, fk: Tensor, u: Tensor, gate: Tensor, plan: Plan) -> Tensor:
    """phi(q) A'_t (X N_Q, C, e+1) from fq (X, N_Q, C, d), fk (X, N, C, d) and u (X, N, C, e+1), or some columns of it.

    In causal attention A'_t covers the earlier segments and the earlier pieces of the query's own segment.
    """
    heads = gate.shape[0]
    matrices = (fk.transpose(2, 3) @ u).flatten(2)  # (X, N, F), F = d (e+1)
    sums = plan.key_pieces.sum_by_slot(matrices, plan.slots.number.shape[1], heads)  # (X, S, F)
    mixed = plan.query_pieces.take_by_slot(_mix(sums, gate, plan.slots, plan.causal), heads)  # (X, N_Q, F)
    if plan.causal:
        own = gate[:, gate.shape[1] // 2].repeat(fk.shape[0] // heads)[:, None, None]  # (X, 1, 1)
        earlier = plan.key_pieces.earlier_in_slot(matrices, heads)
        mixed = mixed if earlier is None else mixed.addcmul_(own, earlier)
    return torch.bmm(fq.flatten(0, 1), mixed.view(-1, fk.shape[3], u.shape[3]))


def _mix(sums: Tensor, gate: Tensor, slots: Slots, causal: bool) -> Tensor:
    """A'_t of all slots t: the sums A_s (X, S, F), each times its gate; if causal, only those before t."""
    count, block, margin = sums.shape[1], slots.block, gate.shape[1] // 2 - 1
    blocks = count // block
    own = torch.arange(count, device=sums.device).view(blocks, block, 1)
    other = own[:, :1] + torch.arange(-margin, block + margin, device=sums.device)  # (n, 1, W)
    inside = (other >= 0) & (other < (own if causal else count))
    distance = slots.number[:, other.clamp(0, count - 1)] - slots.number.view(-1, blocks, block, 1)  # (B, n, T, W)
    scale = slots.scale.view(-1, blocks, block, 1)  # (B, n, T, 1)
    near = slots.weigh(gate, distance, scale) * inside  # (B, H, n, T, W)
    mixed = banded_product(near.flatten(0, 2), sums, margin)  # (X, S, F)
    if blocks == 1:
        return mixed
    sides = gate[:, [0]] if causal else gate[:, [0, -1]]  # (H, K)
    weights = (scale[:, None] * sides[:, None, None]).flatten(0, 2)  # (X n, T, K)
    far = sums_outside(sums, block, margin, after=not causal).flatten(0, 1)  # (X n, K, F)
    return mixed.view(*weights.shape[:2], -1).baddbmm_(weights, far).view_as(mixed)


def _after(u: Tensor, gate: Tensor, pieces: Pieces, slots: Slots) -> tuple[Tensor, Tensor]:
    """The weight (X, N, 1, 1) of a piece's keys for its own queries, and the sum (X, N, 1, e+1) of U over all later
    pieces, each times its weight for those queries."""
    rows, count, _, _ = u.shape
    heads, reach = gate.shape[0], gate.shape[1] // 2
    batch, number = rows // heads, slots.number
    here, scale = number.gather(1, pieces.slot), slots.scale.gather(1, pieces.slot)  # (B, N)
    own = slots.weigh(gate, number.gather(1, pieces.key_slot) - here, scale)  # (B, H, N)

    # Weights change from slot to slot: summation by parts, over the suffix sums of the pieces.
    later = functional.pad(u.sum(2).double().flip(1).cumsum(1).flip(1), (0, 0, 0, 1))  # (X, N+1, e+1)
    place = pieces.slot[:, :, None] + torch.arange(1 - reach, reach + 1, device=u.device)  # (B, N, 2G)
    first = torch.searchsorted(pieces.key_slot, place.flatten(1)).view_as(place)
    next_piece = torch.arange(1, count + 1, device=u.device)[:, None].expand(batch, -1, 1)  # (B, N, 1)
    index = torch.cat([next_piece, torch.maximum(first, next_piece)], dim=2)  # (B, N, 2G+1)
    other = number.gather(1, place[..., :-1].clamp(0, number.shape[1] - 1).flatten(1)).view(batch, count, -1)
    near = slots.weigh(gate, other - here[..., None], scale[..., None])  # (B, H, N, 2G-1)
    far = gate[:, None, [0, -1]] * scale[:, None, :, None]  # (B, H, N, 2)
    weights = torch.cat([far[..., :1], near, far[..., 1:]], dim=-1)  # (B, H, N, 2G+1)
    steps = functional.pad(weights, (1, 0)).diff(dim=-1).flatten(0, 1)  # (X, N, 2G+1)
    taken = take_positions(later.unflatten(0, (batch, heads)), index).to(u.dtype).flatten(0, 1)  # (X, N, 2G+1, e+1)
    return own.flatten(0, 1)[..., None, None], steps[:, :, None] @ taken


def _band(by_distance: Tensor, u: Tensor, gate: Tensor, plan: Plan) -> Tensor:
    """The contribution of the keys within the horizon to the sums, (B, H, L, e+1), from scores by distance
    (B, H, L, n)."""
    batch, heads, length, near = by_distance.shape
    slots, before = plan.slots, near - 1 if plan.causal else near // 2
    block = max(16, before)
    missing = -length % block
    place = torch.arange(length, device=u.device)[:, None] + torch.arange(-before, near - before, device=u.device)
    inside = (place >= 0) & (place < length)  # (L, n)
    distance = plan.keys[:, place.clamp(0, length - 1)] - plan.queries[:, :, None]  # (B, L, n)
    weights = slots.weigh(gate, distance, slots.scale.gather(1, slots.query)[:, :, None]) * inside  # (B, H, L, n)
    weights, u = (functional.pad(x, (0, 0, 0, missing)) for x in (weights * by_distance, u))
    weights = skew(weights.unflatten(2, (-1, block)).flatten(0, 2), block + near - 1)  # (X L / T, T, W)
    out = banded_product(weights, u.flatten(0, 1), before)
    return out.unflatten(0, (batch, heads))[:, :, :length]
