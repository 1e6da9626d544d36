"""Where segments lie, for hybrid attention: numbers without gaps, blocks of one segment each, and rows by index."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.segment_plan import clean_segments


def check_near(near: int, log_gate: Tensor) -> None:
    """Raise ValueError unless 0 <= near < G, log_gate (H, 2G+1)."""
    reach = log_gate.shape[1] // 2
    if not 0 <= near < reach:
        raise ValueError(f"near is {near}: it must be at least 0 and below the reach of log_gate, {reach} segments")


class Numbers(NamedTuple):
    """Segment numbers from 0 on, shared by queries (B, L_Q) and keys (B, L_K): no gap is wider than G.

    total   how many numbers there are, the most of any row
    """

    queries: Tensor
    keys: Tensor
    total: int


def number_segments(
    query_segments: Tensor, key_segments: Tensor, key_mask: Tensor | None, causal: bool, reach: int
) -> Numbers:
    """Numbers that never fall, whatever the pads hold. At G and beyond all distances are one, so wide gaps close."""
    queries, keys = clean_segments(query_segments, key_segments, key_mask, causal)
    together, order = torch.cat([queries, keys], dim=1).sort(dim=1)  # (B, L_Q + L_K)
    steps = together.diff(dim=1, prepend=together[:, :1]).clamp(max=reach)
    numbers = torch.empty_like(together).scatter_(1, order, steps.cumsum(1))  # (B, L_Q + L_K)
    length = queries.shape[1]
    return Numbers(numbers[:, :length].contiguous(), numbers[:, length:].contiguous(), int(numbers.max()) + 1)


class Blocks(NamedTuple):
    """M blocks of consecutive positions of one row and of one number; each field is (M,) long."""

    row: Tensor
    start: Tensor
    size: Tensor
    number: Tensor

    def select(self, index: Tensor | slice) -> Blocks:
        return Blocks(*(field[index] for field in self))

    def positions(self, steps: int, length: int) -> tuple[Tensor, Tensor]:
        """The first `steps` positions of each block (M, steps), at most the row's last; and which are its own."""
        step = torch.arange(steps, device=self.start.device)
        return (self.start[:, None] + step).clamp(max=length - 1), step < self.size[:, None]


def cut_blocks(numbers: Tensor, most: int) -> Blocks:
    """Cut rows of numbers (B, L) that never fall into blocks of one number, at most `most` positions long."""
    length = numbers.shape[1]
    position = torch.arange(length, device=numbers.device).expand_as(numbers)  # (B, L)
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    offset = position - position.masked_fill(~begins, 0).cummax(1).values  # (B, L)
    start = (offset % most == 0).flatten().nonzero().flatten()  # (M,), rows one after the other
    size = torch.cat([start[1:], start.new_tensor([numbers.numel()])]) - start
    return Blocks(start // length, start % length, size, numbers.flatten()[start])


def usual_size(numbers: Tensor, least: int, most: int) -> int:
    """A power of two that holds a segment of mean length, for rows of numbers (B, L)."""
    segments = numbers.shape[0] + int((numbers[:, 1:] != numbers[:, :-1]).sum())
    mean = numbers.numel() / segments
    size = least
    while size < min(mean, most):
        size *= 2
    return size


def flat_rows(row: Tensor, positions: Tensor, heads: int, length: int) -> Tensor:
    """Where positions (M, n) of rows (M,) of a tensor (B, H, L, ...) stand in its first three dimensions: (M, H, n)."""
    head = row[:, None] * heads + torch.arange(heads, device=row.device)  # (M, H)
    return head[:, :, None] * length + positions[:, None]


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (N, n) by number: index (...) -> (..., n)."""
    return x.index_select(0, index.flatten()).view(*index.shape, x.shape[1])
