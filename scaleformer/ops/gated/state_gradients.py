"""The backward pass of one step of segment-gated attention by states. Letters as in `segment_state_blocks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.common.blocks import add_windows, diagonals
from scaleformer.ops.gated.state_blocks import Carried, Keys, Queries, Unit
from scaleformer.ops.gated.state_mixing import Mixed, Mixing, mix_backward
from scaleformer.ops.gated.state_plan import Step

if TYPE_CHECKING:
    from scaleformer.ops.gated.states import Work


class _NearGradients(NamedTuple):
    """What comes back through the window."""

    inner: Tensor | None  # (Y, C, C), of the scores with the own keys, in causal attention
    u_seen: Tensor | None  # (h, P, e+1), of the sums of U before each piece, in both directions
    values: Tensor  # (h, P, W, e)


@dataclass
class Gradients:
    """The gradients of a unit's arguments, to be filled: q (h, L, d), k (h, S, d), v (h, S, e), gate (h, 2G+1)."""

    q: Tensor
    k: Tensor
    v: Tensor
    shift: Tensor | None  # (h, 1, d)
    table: Tensor | None  # (h, r, d)
    gate: Tensor

    @staticmethod
    def make(unit: Unit, dq: Tensor, dk: Tensor) -> Gradients:
        """dq and dk are written to in place."""
        dv = unit.gate.new_zeros(unit.v.shape)
        shift = None if unit.shift is None else dv.new_zeros(unit.heads, 1, unit.d)
        table = None if unit.table is None else dv.new_zeros(unit.table.shape)
        return Gradients(dq, dk, dv, shift, table, torch.zeros_like(unit.gate))

    def add_keys(
        self,
        unit: Unit,
        keys: Keys,
        block: tuple[int, int],
        d_own: Tensor,
        d_u: Tensor | None,
        rest: Tensor | None = None,
    ) -> None:
        """From the gradients of the states of pieces (h, P, m), of their sums of U (h, P, e), and `rest` of phi(k)."""
        d_states = d_own.reshape(-1, unit.d, unit.e + 1)  # (Y, d, e+1)
        d_fk = keys.u @ d_states.transpose(1, 2)  # (Y, C, d)
        if rest is not None:
            d_fk += rest
        if self.shift is not None:
            self.shift += d_fk.view(unit.heads, -1, unit.d).sum(1, keepdim=True)
        d_values = keys.shifted @ d_states[..., : unit.e]  # (Y, C, e)
        if d_u is not None:
            d_values += d_u.reshape(-1, 1, unit.e)
        unit.store(self.k, d_fk.mul_(unit.options.phi.slope_of_value(keys.fk)), unit.row.keys, *block)
        unit.store(self.v, d_values, unit.row.keys, *block, add=True)

    def add_windows(self, unit: Unit, step: Step, parts: Tensor) -> None:
        """From the gradient of the values in windows (h, P, W, e)."""
        position, there, _ = unit.window(step)
        pieces, length = unit.row.queries, self.v.shape[1]
        if not bool(there.all()):
            parts.masked_fill_(~there[..., None], 0.0)
        if not pieces.even(step.first, step.last):
            self.v.index_add_(1, position.flatten(), parts.flatten(1, 2))
            return
        begin = pieces.starts[step.first] - unit.head
        count = (parts.shape[1] - 1) * pieces.chunk + parts.shape[2]
        total = parts.new_zeros(unit.heads, count, unit.e)
        add_windows(total, parts, pieces.chunk)
        first, last = max(begin, 0), min(begin + count, length)
        self.v[:, first:last] += total[:, first - begin : last - begin]


def step_backward(
    unit: Unit,
    step: Step,
    carried: Carried,
    work: Work,
    d_sums: Tensor,
    d_later: Carried | None,
    dropped: int,
    by_after: Tensor | None,
    gradients: Gradients,
) -> Carried:
    """Add to the gradients what a step gives, and return that of what the step got.

    d_sums (Y, C, e+1); d_later that of what it hands on, which leaves out the first `dropped` slots; by_after that of
    the states of all its keys by earlier queries, (h, m).
    """
    p, count = work.queries, step.last - step.first
    later = d_later or Carried(*[None] * len(Carried._fields))  # type: ignore[arg-type]
    own_gate = unit.gate[:, unit.reach, None, None]  # (h, 1, 1)
    d_seen = torch.bmm(p.fq.transpose(1, 2), d_sums).view(unit.heads, count, -1)  # (h, P, m)
    d_fq = d_sums @ p.states.transpose(1, 2)  # (Y, C, d)
    d_states, d_before = _mixed_gradient(
        unit, step, unit.weights, work.states, p.mixed, d_seen, later.states, later.before, dropped, gradients
    )
    d_partial = None if carried.partial is None else torch.zeros_like(carried.partial)
    d_handed = d_partial if later.partial is None else later.partial
    d_own = d_u_states = d_u_before = None
    if p.partial is not None and d_handed is not None:
        gradients.gate[:, unit.reach] += (d_seen * p.partial).sum((1, 2))
        d_own, d_partial = unit.before_pieces_backward(step, d_seen * own_gate, d_handed)
    near = None
    if p.near is not None:
        near = _near_gradients(unit, step, p, work.keys, d_sums, d_fq, gradients)
    if near is not None and near.u_seen is not None:
        assert unit.past is not None
        assert work.u_states is not None
        assert p.u_mixed is not None
        d_u_states, d_u_before = _mixed_gradient(
            unit,
            step,
            unit.past,
            work.u_states,
            p.u_mixed,
            near.u_seen,
            later.u_states,
            later.u_before,
            dropped,
            gradients,
        )
        if p.u_partial is not None and d_handed is not None:
            gradients.gate[:, unit.reach] += (near.u_seen * p.u_partial).sum((1, 2))
            d_inner, d_partial = unit.before_pieces_backward(step, near.u_seen * own_gate, d_handed)  # (h, P, e+1)
            valid = unit.row.queries.valid[step.first : step.last, :, None]  # (P, C, 1)
            near.values[:, :, unit.head : unit.head + p.fq.shape[1]] += d_inner[:, :, None, : unit.e] * valid
    if near is not None:
        gradients.add_windows(unit, step, near.values)
    rest = None
    if near is not None and near.inner is not None:
        rest = near.inner.transpose(1, 2) @ p.fq  # (Y, C, d)
    unit.store(gradients.q, d_fq.mul_(unit.options.phi.slope_of_value(p.fq)), unit.row.queries, step.first, step.last)
    for keys, block in zip(work.keys, step.keys, strict=True):
        d_piece = unit.at_keys(d_states, step, block)  # (h, P, m)
        for more in (None if by_after is None else by_after[:, None], d_own):
            d_piece = d_piece if more is None else d_piece + more
        d_u = None if d_u_states is None else unit.at_keys(d_u_states, step, block)[..., : unit.e]  # (h, P, e)
        gradients.add_keys(unit, keys, block, d_piece, d_u, rest)
    given = carried.states.shape[1]
    d_u_states = None if d_u_states is None else d_u_states[:, :given]
    return Carried(d_states[:, :given], d_before, d_u_states, d_u_before, d_partial)


def _mixed_gradient(
    unit: Unit,
    step: Step,
    weights: Mixing,
    states: Tensor,
    mixed: Mixed,
    d_seen: Tensor,
    d_kept: Tensor | None,
    d_later_before: Tensor | None,
    dropped: int,
    gradients: Gradients,
) -> tuple[Tensor, Tensor]:
    """The gradients of the states at hand (h, r T, m) and of the sum before them (h, m).

    d_seen (h, P, m) is that of what query pieces saw; d_kept and d_later_before come from the step after.
    """
    d_states = torch.empty_like(states)
    if d_kept is None or d_later_before is None:
        d_states.zero_()
    else:
        d_states[:, :dropped] = d_later_before[:, None]
        d_states[:, dropped:] = d_kept
    d_mixed = unit.at_slots(d_seen, step, mixed.mixed)
    d_before = mix_backward(weights, step, states, mixed, d_mixed, d_states, gradients.gate)
    return d_states, d_before if d_later_before is None else d_before + d_later_before


def _near_gradients(
    unit: Unit, step: Step, p: Queries, keys: list[Keys], d_sums: Tensor, d_fq: Tensor, gradients: Gradients
) -> _NearGradients:
    near, chunk, count, e = p.near, p.fq.shape[1], step.last - step.first, unit.e
    assert near is not None
    d_scores = d_sums @ near.u.transpose(1, 2)  # (Y, C, W or W+1)
    d_gates = (d_scores * near.plain).sum(1)  # (Y, W or W+1)
    if near.gate is None:
        gradients.gate[:, unit.reach] += d_gates.view(unit.heads, -1).sum(1)
        d_scores.view(unit.heads, -1).mul_(unit.gate[:, unit.reach, None])
    else:
        column, scale = unit.window_gate(step, unit.window(step)[2])
        by_column = d_gates.view(unit.heads, count, -1)[:, :, : unit.width] * scale  # (h, P, W)
        gradients.gate.index_add_(1, column.flatten(), by_column.flatten(1))
        d_scores.mul_(near.gate)
    own = d_scores[:, :, unit.head : unit.head + chunk] * p.fq.new_ones(chunk, chunk).tril()  # (Y, C, C)
    u_seen = None
    if unit.causal:
        d_fq.baddbmm_(own, keys[0].shifted)
    if unit.table is not None:
        assert gradients.table is not None
        d_by_distance = diagonals(d_scores, unit.band)  # (Y, C, r)
        if not unit.causal:
            d_shift = own.sum(-1, keepdim=True) + d_scores[..., -1:]  # (Y, C, 1)
            d_by_distance = torch.cat([d_by_distance, d_shift], dim=-1)
            u_seen = (near.scores[:, :, -1:].transpose(1, 2) @ d_sums).view(unit.heads, count, -1)  # (h, P, e+1)
        d_by_distance = d_by_distance.reshape(unit.heads, count * chunk, -1)  # (h, P C, r)
        fq = p.fq.view(unit.heads, count * chunk, -1)  # (h, P C, d)
        d_fq.view(fq.shape).baddbmm_(d_by_distance, unit.table)
        gradients.table.baddbmm_(d_by_distance.transpose(1, 2), fq)
    values = near.scores[:, :, : unit.width].transpose(1, 2) @ d_sums[..., :e]  # (Y, W, e)
    return _NearGradients(own if unit.causal else None, u_seen, values.unflatten(0, (unit.heads, -1)))
