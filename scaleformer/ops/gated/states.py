"""Segment-gated attention in linear time by states: for segments of any length.

Each piece of a segment has a state, the sum of phi(K) (x) U over it; U = [V, 1]. A query sees a weighed sum of states:
those of the segments near to its own, one by one, and one sum over those before and one over those after them
(`segment_mixing`). Relative positions, with b = phi(rel_0), a = phi(rel_2R) and c_i = phi(q_i).(b - a):

* in both directions the keys are shifted by a, and c_i multiplies the sum of U over all keys up to the query, weighed
  as the states are; a window around each piece has the horizon and the piece itself;
* causal: the keys are shifted by b; the own piece is scored key by key in its window, what came before it in the
  segment is a state.

All of it runs in steps of some pieces, from the first to the last, so that what is made on the way stays in the cache;
the backward pass goes from the last to the first and makes each step again from what it got from the one before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.sums import inverse_denominator
from scaleformer.ops.gated.state_blocks import Carried, Keys, Queries, StateOptions, Unit
from scaleformer.ops.gated.state_gradients import Gradients, step_backward
from scaleformer.ops.gated.state_plan import Step


class Work(NamedTuple):
    """What a step has made."""

    keys: list[Keys]  # by blocks
    states: Tensor  # (h, r T, m)
    u_states: Tensor | None  # (h, r T, e+1)
    queries: Queries


def do_step(unit: Unit, step: Step, carried: Carried, after: Tensor | None) -> tuple[Work, Tensor | None]:
    """The work of a step, and what it hands on as `partial`."""
    keys, states = unit.read(step, carried.states)
    u_states = None if carried.u_states is None else unit.read_u(step, carried.u_states, keys)
    queries, handed = unit.queries(step, states, after, carried, u_states, keys[0] if unit.causal else None)
    return Work(keys, states, u_states, queries), handed


def _forward(unit: Unit, out: Tensor, inverse: Tensor) -> list[tuple[Carried, Tensor | None]]:
    """Fill out (h, L, e) and inverse (h, L, 1); return what each step got."""
    steps, pieces = unit.row.steps, unit.row.queries
    carried, got = unit.start(), []
    for number, (step, after) in enumerate(zip(steps, _sums_after(unit), strict=True)):
        got.append((carried, after))
        work, partial = do_step(unit, step, carried, after)
        p = work.queries
        sums = p.fq @ p.states  # (Y, C, e+1)
        if p.near is not None:
            sums.baddbmm_(p.near.scores, p.near.u)
        step_inverse = inverse_denominator(sums)
        unit.store(inverse, step_inverse, pieces, step.first, step.last)
        unit.store(out, sums[..., : unit.e] * step_inverse, pieces, step.first, step.last)
        if number + 1 < len(steps):
            carried = unit.hand_on(step, steps[number + 1], work.states, work.u_states, p, carried, partial)
    return got


def _sums_after(unit: Unit) -> list[Tensor | None]:
    """For each step the sum of the states of all keys that are read after it: (h, m), None for zeros."""
    steps = unit.row.steps
    found: list[Tensor | None] = [None] * len(steps)
    if unit.causal:
        return found
    total: Tensor | None = None
    for number in range(len(steps) - 1, -1, -1):
        for first, last in unit.row.rest if number + 1 == len(steps) else steps[number + 1].keys:
            state = unit.state(first, last)
            total = state if total is None else total + state
        found[number] = total
    return found


def _gradients_after(unit: Unit, arrived: tuple[Tensor, Tensor, Tensor]) -> list[Tensor | None]:
    """For each step the gradient of the states of keys read in it by queries of earlier steps, to which they are after;
    last that of the keys of no step: (h, m), None for zeros."""
    steps, pieces = unit.row.steps, unit.row.queries
    if unit.causal or (len(steps) == 1 and not unit.row.rest):
        return [None] * (len(steps) + 1)
    found: list[Tensor | None] = [None]
    total: Tensor | None = None
    for step in steps:
        fq = unit.options.phi(unit.take(unit.q, pieces, step.first, step.last))  # (Y, C, d)
        scale = unit.row.scale[pieces.slot[step.first : step.last], None, None]  # (P, 1, 1)
        weight = unit.gate[:, -1, None, None, None] * scale  # (h, P, 1, 1)
        fq = fq.unflatten(0, (unit.heads, -1)).mul_(weight).flatten(1, 2)  # (h, P C, d)
        d_sums = unit.sums_gradient(step, arrived).view(*fq.shape[:2], -1)  # (h, P C, e+1)
        own = (fq.transpose(1, 2) @ d_sums).flatten(1)  # (h, m)
        total = own if total is None else total + own
        found.append(total)
    return found


def _backward(
    unit: Unit,
    got: list[tuple[Carried, Tensor | None]],
    arrived: tuple[Tensor, Tensor, Tensor],
    gradients: Gradients,
) -> None:
    """Add up the gradients; arrived: that of the output, the output and one over the denominators, (h, L, n) each."""
    steps = unit.row.steps
    by_after = _gradients_after(unit, arrived)
    for first, last in unit.row.rest:
        fk, shifted, u = unit.features(first, last)
        d_states = by_after[-1]
        assert d_states is not None
        own = d_states[:, None].expand(-1, last - first, -1)  # (h, P, m)
        gradients.add_keys(unit, Keys(fk, shifted, u, own), (first, last), own, None)
    d_later: Carried | None = None  # the gradient of what the step hands on
    for number in range(len(steps) - 1, -1, -1):
        step, (carried, after) = steps[number], got[number]
        work, _ = do_step(unit, step, carried, after)
        d_sums = unit.sums_gradient(step, arrived)  # (Y, C, e+1)
        dropped = 0
        if number + 1 < len(steps):
            dropped = (steps[number + 1].low - step.low) * unit.options.plan.group
        d_later = step_backward(unit, step, carried, work, d_sums, d_later, dropped, by_after[number], gradients)


class StateAttention(torch.autograd.Function):
    """Segment-gated attention by states, step after step; the backward pass computes each step again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        shift: Tensor | None,
        table: Tensor | None,
        gate: Tensor,
        options: StateOptions,
    ) -> Tensor:
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e), gate (H, 2G+1) of the type of the sums.

        Without relative positions shift and table are None. Causal: shift (1 or H, 1, d), b, and table (1 or H, R, d)
        for the distances -R+1 to 0. Else shift a and table (1 or H, 2R, d) for -R+1 to R-1, and last b - a.
        """
        trained = any(ctx.needs_input_grad)
        out = v.new_empty(
            *q.shape[:3], v.shape[3], dtype=options.dtype if trained else v.dtype
        )  # backward needs it exactly
        inverse = v.new_empty(*q.shape[:3], 1, dtype=options.dtype)
        got: list[Tensor | None] = []
        for row, heads in _units(q, options):
            unit = _unit(q, k, v, shift, table, gate, row, heads, options)
            for carried, after in _forward(unit, out[row, heads], inverse[row, heads]):
                got += [*carried, after]
        ctx.save_for_backward(q, k, v, shift, table, gate, out, inverse, *got)
        ctx.options = options
        return out.to(v.dtype)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, shift, table, gate, out, inverse, *got = ctx.saved_tensors
        options: StateOptions = ctx.options
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        d_gate = torch.zeros_like(gate)
        d_shift, d_table = (None if x is None else torch.zeros_like(x) for x in (shift, table))
        size = len(Carried._fields) + 1
        for row, heads in _units(q, options):
            unit = _unit(q, k, v, shift, table, gate, row, heads, options)
            arrived = grad[row, heads], out[row, heads], inverse[row, heads]
            steps = len(unit.row.steps)
            received = [(Carried(*got[n : n + size - 1]), got[n + size - 1]) for n in range(0, steps * size, size)]
            got = got[steps * size :]
            gradients = Gradients.make(unit, dq[row, heads], dk[row, heads])
            _backward(unit, received, arrived, gradients)
            if unit.row.real is not None:
                gradients.v.masked_fill_(~unit.row.real[:, None], 0.0)
            dv[row, heads] = gradients.v
            d_gate[heads] += gradients.gate
            for total, part in ((d_shift, gradients.shift), (d_table, gradients.table)):
                if total is not None and part is not None:
                    if total.shape[0] == 1:
                        total += part.sum(0, keepdim=True)
                    else:
                        total[heads] += part
        return dq, dk, dv, d_shift, d_table, d_gate, None


def _units(q: Tensor, options: StateOptions) -> list[tuple[int, slice]]:
    """Rows of the batch and heads that are worked on together."""
    step = options.plan.heads
    return [(row, slice(h, h + step)) for row in range(q.shape[0]) for h in range(0, q.shape[1], step)]


def _unit(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shift: Tensor | None,
    table: Tensor | None,
    gate: Tensor,
    row: int,
    heads: slice,
    options: StateOptions,
) -> Unit:
    shift, table = (x if x is None or x.shape[0] == 1 else x[heads] for x in (shift, table))
    return Unit(q[row, heads], k[row, heads], v[row, heads], shift, table, gate[heads], options.plan.rows[row], options)
