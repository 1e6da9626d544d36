"""What forward and backward of segment-gated attention by states make of a step: its keys, its queries and their band.

Letters as in `segment_states`: a unit is one row of the batch and h of its heads; a block has P pieces, Y = h P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.blocks import diagonals
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.sums import sums_gradient
from scaleformer.ops.gated.state_mixing import Mixed, Mixing, mix
from scaleformer.ops.gated.state_plan import Pieces, RowPlan, StatePlan, Step


@dataclass(frozen=True)
class StateOptions:
    """What is not a tensor with a gradient."""

    plan: StatePlan
    phi: FeatureMap
    causal: bool
    dtype: torch.dtype


class Keys(NamedTuple):
    """A block of keys."""

    fk: Tensor  # (Y, C, d), without shift
    shifted: Tensor  # (Y, C, d)
    u: Tensor  # (Y, C, e+1), zeros where there is no key
    own: Tensor  # (h, P, m), the state of each piece


class Carried(NamedTuple):
    """What a step hands to the next one; the two kinds of sums are those of phi(k) (x) U, and of U alone.

    states, before  (h, r T, m) those of the slots at hand to both steps, and (h, m) their sum over all slots before
    u_states, u_before  the same of U, (h, r T, e+1) and (h, e+1): for relative positions in both directions
    partial  (h, m) or (h, e+1): of the piece that comes next what came before it in its segment
    """

    states: Tensor
    before: Tensor
    u_states: Tensor | None
    u_before: Tensor | None
    partial: Tensor | None


class Near(NamedTuple):
    """The window of each piece and what the queries give to it; W columns, then, in both directions, the sum before."""

    u: Tensor  # (Y, W or W+1, e+1)
    gate: Tensor | None  # (Y, 1, W or W+1); None in a window that is but the piece: gate 0 throughout
    plain: Tensor  # (Y, C, W or W+1), without gate
    scores: Tensor  # (Y, C, W or W+1)


class Queries(NamedTuple):
    """A block of queries."""

    fq: Tensor  # (Y, C, d)
    mixed: Mixed
    partial: Tensor | None  # (h, P, m), of the own segment before each piece
    states: Tensor  # (Y, d, e+1), what each piece sees
    u_mixed: Mixed | None
    u_partial: Tensor | None  # (h, P, e+1)
    near: Near | None


class Unit:
    """One row of the batch and some heads: h heads, sequences (h, L, n)."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        shift: Tensor | None,
        table: Tensor | None,
        gate: Tensor,
        row: RowPlan,
        options: StateOptions,
    ) -> None:
        """shift (1 or h, 1, d) is added to the features of the keys; table (1 or h, r, d); gate (h, 2G+1)."""
        self.q, self.k, self.v, self.shift, self.gate, self.row, self.options = q, k, v, shift, gate, row, options
        self.heads, self.d, self.e = q.shape[0], k.shape[2], v.shape[2]
        self.reach, self.causal = gate.shape[1] // 2, options.causal
        self.table = None if table is None else table.expand(self.heads, -1, -1)  # (h, r, d)
        plan, chunk = options.plan, row.queries.chunk
        self.weights = Mixing(gate, row.scale, plan.group, plan.offset, past=self.causal)
        self.past = None  # for sums of U, in both directions
        # How many columns of the window stand before the piece, and how many are in the band of the horizon.
        self.band = self.head = 0
        self.width = chunk
        if table is not None:
            self.band = table.shape[1] - (0 if self.causal else 1)
            self.head = self.band - 1 if self.causal else self.band // 2
            self.width = self.head + chunk + (0 if self.causal else self.head)
            if not self.causal:
                self.past = Mixing(gate, row.scale, plan.group, plan.offset, past=True)

    def start(self) -> Carried:
        zeros = self.q.new_zeros(self.heads, 0, self.d * (self.e + 1), dtype=self.options.dtype)
        before = zeros.new_zeros(self.heads, zeros.shape[2])
        partial = before if self.causal else None
        if self.past is None:
            return Carried(zeros, before, None, None, partial)
        u_before = zeros.new_zeros(self.heads, self.e + 1)
        return Carried(zeros, before, zeros.new_zeros(self.heads, 0, self.e + 1), u_before, u_before)

    def take(self, x: Tensor, pieces: Pieces, first: int, last: int) -> Tensor:
        """x (h, L, n) at the places of a block: (Y, C, n)."""
        count = (last - first) * pieces.chunk
        if pieces.even(first, last):
            begin = pieces.starts[first]
            part = x[:, begin : begin + count]
            if part.shape[1] < count:
                part = functional.pad(part, (0, 0, 0, count - part.shape[1]))
        else:
            part = x.index_select(1, pieces.positions[first:last].flatten())
        return part.to(self.options.dtype).reshape(-1, pieces.chunk, x.shape[2])

    def store(self, x: Tensor, part: Tensor, pieces: Pieces, first: int, last: int, add: bool = False) -> None:
        """Write part (Y, C, n) to the positions of a block in x (h, L, n), or add it to what is there."""
        begin, end = pieces.starts[first], pieces.starts[last]
        rows = part.view(self.heads, -1, part.shape[2])  # (h, P C, n)
        if pieces.even(first, last):
            rows = rows[:, : end - begin]
        else:
            rows = rows.index_select(1, pieces.place[begin:end] - first * pieces.chunk)
        target = x[:, begin:end]
        if add:
            target.add_(rows)
        else:
            target.copy_(rows)

    def features(self, first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of a block of key pieces phi(k) without and with shift, (Y, C, d), and U, (Y, C, e+1); zeros for no key."""
        pieces = self.row.keys
        fk = self.options.phi(self.take(self.k, pieces, first, last))  # (Y, C, d)
        u = fk.new_empty(*fk.shape[:2], self.e + 1)
        u[..., : self.e] = self.take(self.v, pieces, first, last)
        u[..., self.e] = 1.0
        if not pieces.full(first, last):
            absent = ~pieces.there[first:last, :, None]  # (P, C, 1)
            u.unflatten(0, (self.heads, -1)).masked_fill_(absent, 0.0)
            if self.row.real is not None:  # a pad may hold what is no number
                fk.unflatten(0, (self.heads, -1)).masked_fill_(absent, 0.0)
        if self.shift is None:
            return fk, fk, u
        return fk, (fk.unflatten(0, (self.heads, -1)) + self.shift[:, None]).flatten(0, 1), u

    def read(self, step: Step, carried: Tensor) -> tuple[list[Keys], Tensor]:
        """The keys of a step by blocks, and the states of all slots at hand (h, r T, m)."""
        given, blocks = carried.shape[1], step.keys
        states = carried.new_empty(self.heads, (step.high - step.low) * self.options.plan.group, carried.shape[2])
        states[:, :given] = carried
        if len(blocks) == 1 and self.heads == 1 and self.row.keys.rising(*blocks[0]):
            place = self.place(step, blocks[0])
            if place >= given:  # each piece is all of a new slot: its state is written where it belongs
                fk, shifted, u = self.features(*blocks[0])
                own = states[0, place : place + blocks[0][1] - blocks[0][0]]  # (P, m)
                torch.bmm(shifted.transpose(1, 2), u, out=own.view(-1, self.d, self.e + 1))
                states[:, given:place] = 0.0
                states[:, place + own.shape[0] :] = 0.0
                return [Keys(fk, shifted, u, own.unsqueeze(0))], states
        states[:, given:] = 0.0
        keys = []
        for first, last in blocks:
            fk, shifted, u = self.features(first, last)
            own = torch.bmm(shifted.transpose(1, 2), u).view(self.heads, last - first, -1)  # (h, P, m)
            states.index_add_(1, self.slots_at(step, first, last), own)
            keys.append(Keys(fk, shifted, u, own))
        return keys, states

    def read_u(self, step: Step, carried: Tensor, keys: list[Keys]) -> Tensor:
        """As the states of `read`, those of U alone: (h, r T, e+1)."""
        slots = (step.high - step.low) * self.options.plan.group
        states = functional.pad(carried, (0, 0, 0, slots - carried.shape[1]))
        for (first, last), part in zip(step.keys, keys, strict=True):
            own = part.u.sum(1).unflatten(0, (self.heads, -1))  # (h, P, e+1)
            states.index_add_(1, self.slots_at(step, first, last), own)
        return states

    def place(self, step: Step, block: tuple[int, int]) -> int:
        """Where in the slots at hand the first key piece of a block belongs."""
        plan = self.options.plan
        return self.row.keys.slots[block[0]] - (step.low * plan.group - plan.offset)

    def slots_at(self, step: Step, first: int, last: int) -> Tensor:
        """Where in the slots at hand the key pieces of a block belong: (P,)."""
        plan = self.options.plan
        return self.row.keys.slot[first:last] - (step.low * plan.group - plan.offset)

    def state(self, first: int, last: int) -> Tensor:
        """The sum of the states of all keys of a block: (h, m)."""
        _, shifted, u = self.features(first, last)
        return (shifted.view(self.heads, -1, self.d).transpose(1, 2) @ u.view(self.heads, -1, self.e + 1)).flatten(1)

    def hand_on(
        self,
        step: Step,
        following: Step,
        states: Tensor,
        u_states: Tensor | None,
        queries: Queries,
        got: Carried,
        partial: Tensor | None,
    ) -> Carried:
        """What the following step gets: the states that it still needs, and the sums with all others added."""
        ranges = following.low - step.low
        dropped = ranges * self.options.plan.group
        kept, before = states[:, dropped:].clone(), got.before + queries.mixed.ranges[:, :ranges].sum(1)
        if u_states is None or got.u_before is None or queries.u_mixed is None:
            return Carried(kept, before, None, None, partial)
        u_before = got.u_before + queries.u_mixed.ranges[:, :ranges].sum(1)
        return Carried(kept, before, u_states[:, dropped:].clone(), u_before, partial)

    def sums_gradient(self, step: Step, arrived: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The gradient of the sums of a step (Y, C, e+1), zeros at empty places; arrived as for `sums_gradient`."""
        pieces = self.row.queries
        d_sums = sums_gradient(*(self.take(x, pieces, step.first, step.last) for x in arrived))
        if pieces.shorter[step.first] != pieces.shorter[step.last]:
            empty = ~pieces.valid[step.first : step.last, :, None]  # (P, C, 1)
            d_sums.unflatten(0, (self.heads, -1)).masked_fill_(empty, 0.0)
        return d_sums

    def seen(self, mixed: Tensor, step: Step) -> Tensor:
        """For each query piece of a step what was made for its slot: (h, P, m) from (h, g T, m)."""
        pieces, base = self.row.queries, step.group * self.options.plan.group
        if pieces.rising(step.first, step.last):
            return mixed.narrow(1, pieces.slots[step.first] - base, step.last - step.first)
        return mixed.index_select(1, pieces.slot[step.first : step.last] - base)

    def at_slots(self, d_seen: Tensor, step: Step, mixed: Tensor) -> Tensor:
        """The gradient of `mixed` (h, g T, m) from that of what pieces saw, (h, P, m)."""
        pieces, base = self.row.queries, step.group * self.options.plan.group
        if pieces.rising(step.first, step.last):
            if d_seen.shape == mixed.shape:
                return d_seen
            left = pieces.slots[step.first] - base
            return functional.pad(d_seen, (0, 0, left, mixed.shape[1] - left - d_seen.shape[1]))
        return torch.zeros_like(mixed).index_add_(1, pieces.slot[step.first : step.last] - base, d_seen)

    def at_keys(self, states: Tensor, step: Step, block: tuple[int, int]) -> Tensor:
        """For each key piece of a block what there is for its slot: (h, P, n) from (h, r T, n)."""
        if self.row.keys.rising(*block):
            return states.narrow(1, self.place(step, block), block[1] - block[0])
        return states.index_select(1, self.slots_at(step, *block))

    def queries(
        self,
        step: Step,
        states: Tensor,
        after: Tensor | None,
        carried: Carried,
        u_states: Tensor | None,
        keys: Keys | None,
    ) -> tuple[Queries, Tensor | None]:
        """The queries of a step, and what the next one gets as `partial`; keys: in causal attention, of the step."""
        fq = self.options.phi(self.take(self.q, self.row.queries, step.first, step.last))  # (Y, C, d)
        mixed = mix(self.weights, step, states, carried.before, after)
        seen = self.seen(mixed.mixed, step)  # (h, P, m)
        partial = u_mixed = u_partial = near = None
        handed = carried.partial
        if keys is not None:
            assert carried.partial is not None
            partial, handed = self.before_pieces(step, keys.own, carried.partial)
            if partial is not None:
                seen = torch.addcmul(seen, partial, self.gate[:, self.reach, None, None])
        if self.past is not None:
            assert u_states is not None
            assert carried.u_before is not None
            assert carried.partial is not None
            u_mixed = mix(self.past, step, u_states, carried.u_before, None)
        if self.table is not None or keys is not None:
            near, u_partial, handed_u = self._near(step, fq, keys, u_mixed, carried)
            handed = handed if keys is not None else handed_u
        seen = seen.reshape(fq.shape[0], self.d, self.e + 1)  # (Y, d, e+1)
        return Queries(fq, mixed, partial, seen, u_mixed, u_partial, near), handed

    def before_pieces(self, step: Step, own: Tensor, carry: Tensor) -> tuple[Tensor | None, Tensor]:
        """For each query piece, and the one after the step, the sum over the pieces before it in its segment.

        own (h, P, m), carry (h, m): that of the first. None stands for zeros.
        """
        on = self.row.queries.continues(step.first, step.last)
        if not any(on):
            return None, torch.zeros_like(carry)
        partial = own.new_zeros(own.shape[0], own.shape[1] + 1, own.shape[2])
        partial[:, 0] = carry
        for number in range(own.shape[1]):
            if on[number + 1]:
                torch.add(partial[:, number], own[:, number], out=partial[:, number + 1])
        return partial[:, :-1], partial[:, -1].clone()

    def before_pieces_backward(self, step: Step, d_partial: Tensor, d_handed: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of own (h, P, m) and carry (h, m)."""
        on = self.row.queries.continues(step.first, step.last)
        d_own = torch.zeros_like(d_partial)
        total = d_handed
        for number in range(d_partial.shape[1] - 1, -1, -1):
            if on[number + 1]:
                d_own[:, number] = total
                total = total + d_partial[:, number]
            else:
                total = d_partial[:, number]
        return d_own, total if on[0] else torch.zeros_like(total)

    def window(self, step: Step) -> tuple[Tensor, Tensor, Tensor]:
        """Of each query piece the positions in the window (P, W), which exist and are no pads, and their slots."""
        pieces, length = self.row.queries, self.v.shape[1]
        start = pieces.start[step.first : step.last, None] - self.head
        position = start + torch.arange(self.width, device=start.device)  # (P, W)
        there = (position >= 0) & (position < length)
        position = position.clamp(0, length - 1)
        if self.row.real is not None:
            there = there & self.row.real[position]
        return position, there, self.row.key_slots[position]

    def window_gate(self, step: Step, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The column of the gate for each place of a window (P, W), and the scale of it."""
        pieces = self.row.queries
        own = pieces.slot[step.first : step.last, None]  # (P, 1)
        distance = slots - own
        column = distance.clamp(-self.reach, self.reach) + self.reach
        return column, torch.where(distance.abs() >= self.reach, self.row.scale[own], 1.0)

    def _near(
        self, step: Step, fq: Tensor, keys: Keys | None, u_mixed: Mixed | None, carried: Carried
    ) -> tuple[Near, Tensor | None, Tensor | None]:
        chunk, count, extra = fq.shape[1], step.last - step.first, 0 if keys is not None else 1
        past = fq.new_ones(chunk, chunk).tril()
        if self.table is None:
            assert keys is not None
            plain = (fq @ keys.shifted.transpose(1, 2)).mul_(past)
            gate = self.gate[:, self.reach].repeat_interleave(count)[:, None, None]  # (Y, 1, 1)
            return Near(keys.u, None, plain, plain * gate), None, None
        position, there, slots = self.window(step)
        u = fq.new_empty(self.heads, count, self.width + extra, self.e + 1)
        u[:, :, : self.width, : self.e] = self._window_values(step, position)
        u[:, :, : self.width, self.e] = 1.0
        if not bool(there.all()):
            u[:, :, : self.width].masked_fill_(~there[:, :, None], 0.0)
        column, scale = self.window_gate(step, slots)
        gate = fq.new_ones(self.heads, count, self.width + extra)
        gate[:, :, : self.width] = self.gate.index_select(1, column.flatten()).view(-1, *column.shape) * scale
        u_partial = handed = None
        by_distance = self.by_distance(fq)  # (Y, C, r)
        plain = fq.new_zeros(fq.shape[0], chunk, self.width + extra)
        own = plain[:, :, self.head : self.head + chunk]  # (Y, C, C)
        if keys is not None:
            torch.mul(fq @ keys.shifted.transpose(1, 2), past, out=own)
        else:
            assert u_mixed is not None
            assert carried.partial is not None
            own.copy_(by_distance[..., -1:] * past)
            plain[:, :, -1] = by_distance[..., -1]
            valid = self.row.queries.valid[step.first : step.last, None].to(fq.dtype)  # (P, 1, C)
            inner = valid @ u[:, :, self.head : self.head + chunk]  # (h, P, 1, e+1)
            u_partial, handed = self.before_pieces(step, inner.squeeze(2), carried.partial)
            sums = self.seen(u_mixed.mixed, step)  # (h, P, e+1)
            if u_partial is not None:
                sums = torch.addcmul(sums, u_partial, self.gate[:, self.reach, None, None])
            u[:, :, -1] = sums
        diagonals(plain, self.band).add_(by_distance[..., : self.band])
        flat_gate = gate.flatten(0, 1).unsqueeze(1)  # (Y, 1, W or W+1)
        return Near(u.flatten(0, 1), flat_gate, plain, plain * flat_gate), u_partial, handed

    def _window_values(self, step: Step, position: Tensor) -> Tensor:
        """v at the positions of windows (P, W), anything outside the sequence: (h, P, W, e)."""
        pieces, length = self.row.queries, self.v.shape[1]
        begin = pieces.starts[step.first] - self.head
        end = begin + (step.last - step.first - 1) * pieces.chunk + self.width
        if pieces.even(step.first, step.last) and begin >= 0 and end <= length:
            return self.v[:, begin:end].unfold(1, self.width, pieces.chunk).transpose(2, 3)
        return self.v.index_select(1, position.flatten()).unflatten(1, position.shape)

    def by_distance(self, fq: Tensor) -> Tensor:
        """The products of queries (Y, C, d) with the table: (Y, C, r)."""
        assert self.table is not None
        rows = fq.view(self.heads, -1, self.d) @ self.table.transpose(1, 2)  # (h, P C, r)
        return rows.view(*fq.shape[:2], -1)
