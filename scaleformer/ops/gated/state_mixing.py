"""The states that queries of each slot see: those of near slots one by one, all others in one sum before and one after.

Letters: h heads, g groups of T slots, r ranges of T slots, m numbers in a state. See `segment_state_plan` for slots.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.gated.state_plan import Step


class Mixing:
    """The weights that queries of a slot have for the states of slots: the gate, and the scale of what is far."""

    def __init__(self, gate: Tensor, scale: Tensor, group: int, offset: int, past: bool) -> None:
        """gate (h, 2G+1); scale (slots,); past: only slots before that of the query."""
        reach = gate.shape[1] // 2
        place = torch.arange(2 * group, device=gate.device)
        distance = place - offset - place[:group, None]  # (T, 2T)
        self.gate, self.scale, self.group, self.past = gate, scale, group, past
        self.column = distance.clamp(-reach, reach) + reach
        self.outer = distance.abs() >= reach
        self.seen = distance < 0 if past else torch.ones_like(self.outer)

    def near(self, step: Step) -> Tensor:
        """The weights of the slots in the two ranges of each group: (h, g, T, 2T)."""
        gate = self.gate.index_select(1, self.column.flatten()).unflatten(1, self.column.shape) * self.seen
        return gate[:, None] * self._factor(step)

    def far(self, step: Step) -> Tensor:
        """The weights of the sum before, and, unless past, of that after: (h, g, T, 1 or 2)."""
        ends = self.gate[:, None, None, [0] if self.past else [0, -1]]  # (h, 1, 1, 1 or 2)
        return ends * self._scale(step)[..., None]

    def add_gate_gradient(self, d_gate: Tensor, d_near: Tensor, d_far: Tensor, step: Step) -> None:
        """Add to d_gate (h, 2G+1) what the gradients of `near` and `far` give to it."""
        by_place = (d_near * self._factor(step)).sum(1) * self.seen  # (h, T, 2T)
        d_gate.index_add_(1, self.column.flatten(), by_place.flatten(1))
        ends = (d_far * self._scale(step)[..., None]).sum((1, 2))  # (h, 1 or 2)
        d_gate[:, 0] += ends[:, 0]
        if not self.past:
            d_gate[:, -1] += ends[:, 1]

    def _scale(self, step: Step) -> Tensor:
        return self.scale[step.group * self.group : (step.high - 1) * self.group].view(-1, self.group)  # (g, T)

    def _factor(self, step: Step) -> Tensor:
        return torch.where(self.outer, self._scale(step)[..., None], 1.0)  # (g, T, 2T)


class Mixed(NamedTuple):
    """What `mix` makes and its backward pass needs."""

    mixed: Tensor  # (h, g T, m)
    near: Tensor  # (h, g, T, 2T)
    far: Tensor  # (h, g, T, 1 or 2)
    sides: Tensor  # (h, g, 1 or 2, m)
    ranges: Tensor  # (h, r, m), the sums of the states


def mix(weights: Mixing, step: Step, states: Tensor, before: Tensor, after: Tensor | None) -> Mixed:
    """The weighed sums of states (h, r T, m) that the queries of each slot of the step see.

    before, after  (h, m) the sums of the states of the slots before and after those at hand; after None: zeros
    """
    size, skip, groups = weights.group, step.group - step.low, step.high - 1 - step.group
    near, far = weights.near(step), weights.far(step)
    ranges = states.unflatten(1, (-1, size)).sum(2)  # (h, r, m)
    sides = [torch.cat([before[:, None], ranges[:, :-2]], dim=1).cumsum(1)[:, skip:]]  # (h, g, m)
    if not weights.past:
        last = torch.zeros_like(before) if after is None else after
        reverse = torch.cat([last[:, None], ranges[:, skip + 2 :].flip(1)], dim=1).cumsum(1)
        sides.append(reverse.flip(1))
    both = torch.stack(sides, dim=2)  # (h, g, 1 or 2, m)
    mixed = torch.bmm(far.flatten(0, 1), both.flatten(0, 1)).unflatten(0, (-1, groups))  # (h, g, T, m)
    for head in range(states.shape[0]):
        mixed[head].baddbmm_(near[head], _windows(states[head], size, skip, groups))
    return Mixed(mixed.flatten(1, 2), near, far, both, ranges)


def mix_backward(
    weights: Mixing, step: Step, states: Tensor, p: Mixed, d_mixed: Tensor, d_states: Tensor, d_gate: Tensor
) -> Tensor:
    """Add the gradients to those of the states (h, r T, m) and the gate; return that of `before`, (h, m)."""
    size, skip, groups = weights.group, step.group - step.low, step.high - 1 - step.group
    d_mixed = d_mixed.view(-1, groups, size, states.shape[2])  # (h, g, T, m)
    d_near = torch.empty_like(p.near)
    for head in range(states.shape[0]):
        torch.bmm(d_mixed[head], _windows(states[head], size, skip, groups).transpose(1, 2), out=d_near[head])
        by_range = d_states[head].view(-1, size, states.shape[2])  # (r, T, m)
        turned = p.near[head].transpose(1, 2)  # (g, 2T, T)
        by_range[skip : skip + groups].baddbmm_(turned[:, :size], d_mixed[head])
        by_range[skip + 1 :].baddbmm_(turned[:, size:], d_mixed[head])
    d_far = d_mixed @ p.sides.transpose(2, 3)  # (h, g, T, 1 or 2)
    weights.add_gate_gradient(d_gate, d_near, d_far, step)
    d_sides = p.far.transpose(2, 3) @ d_mixed  # (h, g, 1 or 2, m)
    later = d_sides[:, :, 0].flip(1).cumsum(1).flip(1)  # (h, g, m), of all groups from each on
    d_before = later[:, 0]
    # A range is before the groups that begin after it, and after those whose second range comes before it.
    d_ranges = torch.cat([d_before[:, None].expand(-1, skip, -1), functional.pad(later[:, 1:], (0, 0, 0, 2))], dim=1)
    if not weights.past:
        d_ranges[:, skip + 2 :] += d_sides[:, : groups - 1, 1].cumsum(1)
    d_states.unflatten(1, (-1, size)).add_(d_ranges.unsqueeze(2))
    return d_before


def _windows(states: Tensor, size: int, skip: int, groups: int) -> Tensor:
    """View (g, 2T, m) of states (r T, m): the two ranges of each group."""
    numbers = states.shape[1]
    assert states.is_contiguous()
    start = states.storage_offset() + skip * size * numbers
    return states.as_strided((groups, 2 * size, numbers), (size * numbers, numbers, 1), start)
