"""Weighing the states of segments: A'_t = sum_s w_t(s - t) A_s for each query segment t, in linear time.

Queries of a few segments are worked on together. Their near segments lie in one short range of key segments, and A' is
a product of a small matrix of weights with the states in that range and two more: the sums of all states before it and
after it, which each of these queries sees as far.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.blocks import accumulate

_GROUP = 8  # segments to a step of the prefix and the suffix, and query segments to a range
_WIDEST = 6 * _GROUP


class _Range(NamedTuple):
    """Query segments start .. stop and, for each row of the batch, the `width` key segments from `first` (B,) on."""

    start: int
    stop: int
    first: Tensor
    width: int


def _ranges(numbers: Tensor, queries: Tensor, reach: int, causal: bool) -> list[_Range]:
    begin = torch.searchsorted(numbers, queries - reach, right=True) // _GROUP * _GROUP  # (B, T)
    end = torch.searchsorted(numbers, queries if causal else queries + reach)  # (B, T)
    total = queries.shape[1]
    last = torch.arange(0, total, _GROUP, device=queries.device).add(_GROUP - 1).clamp(max=total - 1)
    together = (end[:, last] - begin[:, ::_GROUP]).max(0).values.tolist()
    alone = (end - begin).max(0).values.tolist()
    ranges = []
    for group, width in enumerate(together):
        start, stop = group * _GROUP, min((group + 1) * _GROUP, total)
        spans = [(start, stop, width)] if width <= _WIDEST else [(t, t + 1, alone[t]) for t in range(start, stop)]
        for t, after, span in spans:
            ranges.append(_Range(t, after, begin[:, t], max(-(-span // _GROUP), 0) * _GROUP))
    return ranges


class _Work:
    """The arguments of one call and what both passes make of them; m numbers to a state."""

    def __init__(
        self, states: Tensor, log_gate: Tensor, numbers: Tensor, queries: Tensor, scale: Tensor, causal: bool
    ) -> None:
        self.states, self.numbers, self.queries, self.scale, self.causal = states, numbers, queries, scale, causal
        self.gate = log_gate.exp()  # (H, 2G+1)
        self.batch, self.heads, self.count, self.size = states.shape
        self.rows = torch.arange(self.batch, device=states.device)
        self.ranges = _ranges(numbers, queries, self.gate.shape[1] // 2, causal)
        groups = -(-self.count // _GROUP)
        self.before = states.new_zeros(groups + 1, self.batch, self.heads, self.size)  # sums of the groups before each
        for group in range(groups):
            torch.sum(self.group(states, group), 2, out=self.before[group + 1])
        self.after = self.before.roll(-1, 0)  # sums of each group and those after it
        self.after[-1] = 0.0
        accumulate(self.before)
        accumulate(self.after, reverse=True)

    def group(self, states: Tensor, number: int) -> Tensor:
        return states[:, :, number * _GROUP : (number + 1) * _GROUP]  # (B, H, up to 8, m)

    def borders(self, span: _Range) -> tuple[Tensor, Tensor]:
        """The groups at which a range begins and ends, (B,) each."""
        last = self.before.shape[0] - 1
        return (span.first // _GROUP).clamp(max=last), ((span.first + span.width) // _GROUP).clamp(max=last)

    def places(self, span: _Range) -> tuple[Tensor, Tensor]:
        """The rows of the flat states in a range (B H width,), and which of them there are (B, width)."""
        place = span.first[:, None] + torch.arange(span.width, device=self.states.device)  # (B, width)
        row = torch.arange(self.batch * self.heads, device=place.device).view(self.batch, self.heads, 1) * self.count
        return (row + place.clamp(max=self.count - 1)[:, None]).flatten(), place < self.count

    def known(self, span: _Range) -> Tensor:
        """The sum before the range, its states and the sum after it: (B, H, width + 2, m)."""
        begin, end = self.borders(span)
        known = self.states.new_empty(self.batch, self.heads, span.width + 2, self.size)
        known[:, :, 0] = self.before[begin, self.rows]
        rows, _ = self.places(span)
        known[:, :, 1:-1] = self.states.flatten(0, 2).index_select(0, rows).view(known[:, :, 1:-1].shape)
        known[:, :, -1] = self.after[end, self.rows]
        return known

    def weights(self, span: _Range) -> tuple[Tensor, Tensor]:
        """What each query gives to each row of `known` (B, H, q, width + 2), and by which gate (B, q, width + 2)."""
        reach = self.gate.shape[1] // 2
        _, present = self.places(span)
        place = span.first[:, None] + torch.arange(span.width, device=self.states.device)
        number = self.numbers.gather(1, place.clamp(max=self.count - 1))  # (B, width)
        query = self.queries[:, span.start : span.stop, None]  # (B, q, 1)
        ones = torch.ones_like(query)
        distance = torch.cat([-reach * ones, (number[:, None] - query).clamp(-reach, reach), reach * ones], dim=2)
        present = torch.nn.functional.pad(present, (1, 1), value=True)[:, None]  # (B, 1, width + 2)
        if self.causal:
            present = present & (distance < 0)
        factor = torch.where(distance.abs() == reach, self.scale[:, span.start : span.stop, None], 1.0) * present
        column = distance + reach
        gates = self.gate[:, column].transpose(0, 1)  # (B, H, q, width + 2)
        return gates * factor[:, None], column


class MixSegments(torch.autograd.Function):
    """A'_t for T query segments (B, H, T, m) from the states of S key segments (B, H, S, m).

    log_gate (H, 2G+1); numbers (B, S), those of the key segments, rising; queries (B, T), those of the query segments,
    not falling; scale (B, T), that of what is far to each. Causal: of the segments before t alone.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, states: Tensor, log_gate: Tensor, numbers: Tensor, queries: Tensor, scale: Tensor, causal: bool
    ) -> Tensor:
        work = _Work(states, log_gate, numbers, queries, scale, causal)
        out = states.new_empty(*states.shape[:2], queries.shape[1], states.shape[3])
        for span in work.ranges:
            out[:, :, span.start : span.stop] = work.weights(span)[0] @ work.known(span)
        ctx.save_for_backward(states, log_gate, numbers, queries, scale)
        ctx.causal = causal
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        states, log_gate, numbers, queries, scale = ctx.saved_tensors
        work = _Work(states, log_gate, numbers, queries, scale, ctx.causal)
        d_states, d_log_gate = torch.zeros_like(work.states), torch.zeros_like(work.gate)
        d_before, d_after = torch.zeros_like(work.before), torch.zeros_like(work.after)
        choices = torch.arange(work.gate.shape[1], device=grad.device)
        for span in work.ranges:
            weights, column = work.weights(span)
            given = grad[:, :, span.start : span.stop]  # (B, H, q, m)
            by_gate = (given @ work.known(span).transpose(2, 3)) * weights  # (B, H, q, width + 2)
            chosen = (column.flatten(1).unsqueeze(-1) == choices).to(grad.dtype)  # (B, q (width + 2), 2G+1)
            d_log_gate += (by_gate.flatten(2) @ chosen).sum(0)
            d_known = weights.transpose(2, 3) @ given  # (B, H, width + 2, m)
            rows, _ = work.places(span)
            d_states.flatten(0, 2).index_add_(0, rows, d_known[:, :, 1:-1].reshape(-1, work.size))
            begin, end = work.borders(span)
            d_before[begin, work.rows] += d_known[:, :, 0]
            d_after[end, work.rows] += d_known[:, :, -1]
        # A group is in the sums before all later groups, and in those of itself and all earlier ones.
        by_group = accumulate(d_before, reverse=True)[1:] + accumulate(d_after)[:-1]  # (groups, B, H, m)
        for number, d_group in enumerate(by_group):
            work.group(d_states, number).add_(d_group.unsqueeze(2))
        return d_states, d_log_gate, None, None, None, None
