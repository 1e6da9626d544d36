"""The far part of hybrid attention: the gated kernel over segments beyond the near ones, by one state a segment.

A_s = sum of phi(k) (x) [v, 1] over segment s. The queries of segment t see sum_s w_t(s - t) A_s: a product of a matrix
of weights with the states of a group of segments and those around it, before which and after which one state stands
for all the rest. States live for the length of a group, so that memory is linear in length however short the segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.hybrid_plan import Blocks, Numbers, cut_blocks, flat_rows, take_rows, usual_size
from scaleformer.ops.segment_weights import far_scale

_TOTAL_PIECE = 128
_MOST_SEGMENTS = 16
# How many numbers the states of a group may have: on a CPU they share the cache, on a GPU they only bound memory.
STATE_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 26}


@dataclass(frozen=True)
class FarPlan:
    """Groups of T segments, by number, of all rows at once; those around a group are G - 1 before and `after` after it.

    queries, keys  blocks by number, at most `query_size` and `key_size` long; where those of each group begin and end
    """

    rows: int
    segments: int
    before: int
    after: int
    queries: Blocks
    keys: Blocks
    query_size: int
    key_size: int
    query_ranges: list[tuple[int, int]]
    key_ranges: list[tuple[int, int]]

    @property
    def groups(self) -> int:
        return len(self.query_ranges)

    @property
    def columns(self) -> int:
        """States that the queries of a group see: those of the segments, then all before and all after."""
        return self.before + self.segments + self.after + 2


def far_sums(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_gate: Tensor,
    numbers: Numbers,
    real: Tensor | None,
    near: int,
    causal: bool,
    far_tokens: float,
    phi: FeatureMap,
) -> Tensor:
    """The sums (B, H, L_Q, e+1) of far scores times [v, 1], for arguments of one dtype; pads of k and v hold zeros."""
    u = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # (B, H, L_K, e+1)
    if real is not None:
        u = u * real[:, None, :, None]
    fq, fk = phi(q) / q.shape[3], phi(k)
    reach = log_gate.shape[1] // 2
    plan = plan_far(numbers, reach, causal, q.shape[1] * fk.shape[3] * u.shape[3])
    weights = mixing(plan, log_gate, numbers, real, near, causal, far_tokens)
    outer = _outer_states(fk, u, numbers.keys, plan, causal)
    sums: Tensor = FarSums.apply(fq, fk, u, weights, outer, plan)
    return sums


def plan_far(numbers: Numbers, reach: int, causal: bool, state_numbers: int) -> FarPlan:
    rows, around = numbers.keys.shape[0], reach - 1
    device = numbers.keys.device
    most = STATE_NUMBERS.get(device.type, STATE_NUMBERS["cuda"]) // (rows * state_numbers)
    segments = min(max(most, 2 * around, 8), _MOST_SEGMENTS, numbers.total)
    groups = -(-numbers.total // segments)
    query_size, key_size = (usual_size(side, 8, 64) for side in (numbers.queries, numbers.keys))
    first = torch.arange(groups + 1, device=device) * segments
    queries, (begin, end) = _by_number(cut_blocks(numbers.queries, query_size), first[:-1], first[1:])
    query_ranges = list(zip(begin, end, strict=True))
    after = 0 if causal else around
    keys, (begin, end) = _by_number(cut_blocks(numbers.keys, key_size), first[:-1] - around, first[1:] + after)
    return FarPlan(
        rows, segments, around, after, queries, keys, query_size, key_size, query_ranges,
        list(zip(begin, end, strict=True)),
    )  # fmt: skip


def _by_number(blocks: Blocks, first: Tensor, last: Tensor) -> tuple[Blocks, list[list[int]]]:
    """The blocks in the order of their numbers, and where those from `first` up to `last` begin and end."""
    blocks = blocks.select(blocks.number.argsort(stable=True))
    return blocks, torch.searchsorted(blocks.number, torch.stack([first, last])).tolist()


def mixing(
    plan: FarPlan,
    log_gate: Tensor,
    numbers: Numbers,
    real: Tensor | None,
    near: int,
    causal: bool,
    far_tokens: float,
) -> Tensor:
    """The weights (groups, B, H, T, columns) of the states that each segment of a group sees."""
    reach, device, dtype = log_gate.shape[1] // 2, log_gate.device, log_gate.dtype
    total = plan.groups * plan.segments
    counts = torch.zeros(plan.rows, total + 2 * reach, dtype=dtype, device=device)
    counts.scatter_add_(1, numbers.keys + reach, (torch.ones_like(numbers.keys) if real is None else real).to(dtype))
    summed = counts.cumsum(1)  # (B, total + 2G), column n + G: the keys up to number n
    far = summed[:, :total]  # (B, total)
    if not causal:
        far = far + summed[:, -1:] - summed[:, 2 * reach - 1 : 2 * reach - 1 + total]
    scale = far_scale(far, far_tokens, dtype).view(plan.rows, plan.groups, 1, plan.segments, 1).transpose(0, 1)

    inner = torch.arange(plan.columns - 2, device=device) - plan.before
    outer = inner.new_tensor([-plan.before - plan.segments - 1, plan.segments + plan.after + plan.segments])
    distance = torch.cat([inner, outer]) - torch.arange(plan.segments, device=device)[:, None]  # (T, columns)
    distance = distance.clamp(-reach, reach)
    seen = (distance < -near) if causal else (distance.abs() > near)
    gate = log_gate.exp()[:, distance + reach] * seen  # (H, T, columns)
    return gate * torch.where(distance.abs() >= reach, scale, 1.0)  # (groups, B, H, T, columns)


def _outer_states(fk: Tensor, u: Tensor, numbers: Tensor, plan: FarPlan, causal: bool) -> Tensor:
    """The sums of phi(k) (x) u over all segments before, and all after, those around a group.

    (groups, 2, B, H, d, e+1)
    """
    groups, shape = plan.groups, (*fk.shape[:2], fk.shape[3], u.shape[3])
    if groups == 1:
        return fk.new_zeros(1, 2, *shape)
    ending = (numbers + plan.before) // plan.segments  # a key is before the groups that follow this one
    before = _total(fk, u, ending, groups + 1)[:groups].cumsum(0).roll(1, 0)  # (groups, B, H, d, e+1)
    before = torch.cat([torch.zeros_like(before[:1]), before[1:]])
    if causal:
        return torch.stack([before, torch.zeros_like(before)], dim=1)
    opening = (numbers - plan.after).div(plan.segments, rounding_mode="floor")  # and after those that precede this one
    after = _total(fk, u, opening + 1, groups + 1)[1:].flip(0).cumsum(0).flip(0).roll(-1, 0)
    after = torch.cat([after[:-1], torch.zeros_like(after[:1])])
    return torch.stack([before, after], dim=1)


def _total(fk: Tensor, u: Tensor, group: Tensor, groups: int) -> Tensor:
    """The sums of phi(k) (x) u over the keys of each group (B, L_K): (groups, B, H, d, e+1)."""
    batch, heads, length, d = fk.shape
    size = usual_size(group, 16, _TOTAL_PIECE)
    blocks = cut_blocks(group, size)
    at, valid = blocks.positions(size, length)
    index = flat_rows(blocks.row, at, heads, length)  # (m, H, C)
    features = take_rows(fk.reshape(-1, d), index)  # (m, H, C, d)
    values = take_rows(u.reshape(-1, u.shape[3]), index) * valid[:, None, :, None]  # (m, H, C, e+1)
    states = features.transpose(-1, -2) @ values  # (m, H, d, e+1)
    total = states.new_zeros(groups * batch, *states.shape[1:])
    return total.index_add(0, blocks.number * batch + blocks.row, states).unflatten(0, (groups, batch))


class _Group(NamedTuple):
    """A group at work: p blocks of keys and m of queries, C positions each.

    fk (p, H, C, d), u (p, H, C, e+1), keys_at (p, H, C), key_slot (p,); states (B, H, columns, d (e+1));
    fq (m, H, C, d), reading (m, H, C), writing (m H C,), query_slot (m,), mixed (m, H, d, e+1), valid (m, 1, C, 1)
    """

    fk: Tensor
    u: Tensor
    keys_at: Tensor
    key_slot: Tensor
    states: Tensor
    fq: Tensor
    reading: Tensor
    writing: Tensor
    query_slot: Tensor
    mixed: Tensor
    valid: Tensor


class FarSums(torch.autograd.Function):
    """Group after group; the backward pass makes the states of each group again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, fq: Tensor, fk: Tensor, u: Tensor, weights: Tensor, outer: Tensor, plan: FarPlan
    ) -> Tensor:
        """fq (B, H, L_Q, d), fk (B, H, L_K, d), u (B, H, L_K, e+1), weights (groups, B, H, T, columns),
        outer (groups, 2, B, H, d, e+1) -> (B, H, L_Q, e+1)
        """
        fq, fk, u = fq.contiguous(), fk.contiguous(), u.contiguous()
        ctx.save_for_backward(fq, fk, u, weights, outer)
        ctx.plan = plan
        out = u.new_empty(fq.shape[:3].numel() + 1, u.shape[3])  # the last row takes what belongs to no query
        for number in range(plan.groups):
            group = _group(number, fq, fk, u, weights, outer, plan)
            out.index_copy_(0, group.writing, (group.fq @ group.mixed).view(-1, u.shape[3]))
        return out[:-1].view(*fq.shape[:3], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        fq, fk, u, weights, outer = ctx.saved_tensors
        plan: FarPlan = ctx.plan
        heads, d, e1 = fq.shape[1], fq.shape[3], u.shape[3]
        d_fq = fq.new_empty(fq.shape[:3].numel() + 1, d)
        d_fk, d_u = (torch.zeros_like(x).view(-1, x.shape[3]) for x in (fk, u))
        d_weights, d_outer = torch.empty_like(weights), torch.empty_like(outer)
        grad = grad.reshape(-1, e1)
        for number in range(plan.groups):
            p = _group(number, fq, fk, u, weights, outer, plan)
            d_sums = take_rows(grad, p.reading) * p.valid  # (m, H, C, e+1)
            d_fq.index_copy_(0, p.writing, (d_sums @ p.mixed.transpose(-1, -2)).view(-1, d))
            d_seen = fq.new_zeros(plan.rows * plan.segments, heads, d * e1)
            d_seen.index_add_(0, p.query_slot, (p.fq.transpose(-1, -2) @ d_sums).flatten(2))
            d_seen = d_seen.unflatten(0, (plan.rows, -1)).transpose(1, 2)  # (B, H, T, d (e+1))
            d_weights[number] = d_seen @ p.states.transpose(-1, -2)
            d_states = weights[number].transpose(-1, -2) @ d_seen  # (B, H, columns, d (e+1))
            d_outer[number] = d_states[:, :, -2:].unflatten(3, (d, e1)).movedim(2, 0)
            d_states = d_states[:, :, :-2].transpose(1, 2).flatten(0, 1)  # (B slots, H, d (e+1))
            d_own = d_states.index_select(0, p.key_slot).unflatten(2, (d, e1))  # (p, H, d, e+1)
            d_fk.index_add_(0, p.keys_at.flatten(), (p.u @ d_own.transpose(-1, -2)).view(-1, d))
            d_values = (p.fk @ d_own).mul_(_own(p, plan, number, fk.shape[2]))
            d_u.index_add_(0, p.keys_at.flatten(), d_values.view(-1, e1))
        return d_fq[:-1].view_as(fq), d_fk.view_as(fk), d_u.view_as(u), d_weights, d_outer, None


def _own(p: _Group, plan: FarPlan, number: int, length: int) -> Tensor:
    """Which places of the key blocks of a group are their own: (p, 1, C, 1)."""
    return plan.keys.select(slice(*plan.key_ranges[number])).positions(plan.key_size, length)[1][:, None, :, None]


def _group(number: int, fq: Tensor, fk: Tensor, u: Tensor, weights: Tensor, outer: Tensor, plan: FarPlan) -> _Group:
    heads, d, e1 = fq.shape[1], fq.shape[3], u.shape[3]
    keys = plan.keys.select(slice(*plan.key_ranges[number]))
    at, valid = keys.positions(plan.key_size, fk.shape[2])
    keys_at = flat_rows(keys.row, at, heads, fk.shape[2])  # (p, H, C)
    features = take_rows(fk.view(-1, d), keys_at)  # (p, H, C, d)
    values = take_rows(u.view(-1, e1), keys_at).mul_(valid[:, None, :, None])  # (p, H, C, e+1)
    slots, first = plan.columns - 2, number * plan.segments
    key_slot = keys.row * slots + keys.number - (first - plan.before)  # (p,)
    own = fk.new_zeros(plan.rows * slots, heads, d * e1)
    own.index_add_(0, key_slot, (features.transpose(-1, -2) @ values).flatten(2))
    own = own.unflatten(0, (plan.rows, slots)).transpose(1, 2)  # (B, H, slots, d (e+1))
    states = torch.cat([own, outer[number].flatten(3).movedim(0, 2)], dim=2)  # (B, H, columns, d (e+1))
    seen = (weights[number] @ states).transpose(1, 2).flatten(0, 1)  # (B T, H, d (e+1))

    queries = plan.queries.select(slice(*plan.query_ranges[number]))
    at, valid = queries.positions(plan.query_size, fq.shape[2])
    reading = flat_rows(queries.row, at, heads, fq.shape[2])  # (m, H, C)
    writing = torch.where(valid[:, None], reading, fq.shape[:3].numel()).flatten()
    query_slot = queries.row * plan.segments + queries.number - first  # (m,)
    mixed = seen.index_select(0, query_slot).unflatten(2, (d, e1))  # (m, H, d, e+1)
    asking = take_rows(fq.view(-1, d), reading)  # (m, H, C, d)
    return _Group(
        features, values, keys_at, key_slot, states, asking, reading, writing, query_slot, mixed,
        valid[:, None, :, None],
    )  # fmt: skip
