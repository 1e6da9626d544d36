"""An attention module against a slow form of its equation: the output and every gradient, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scaleformer.model.attention.base import Attention
from scaleformer.ops.segments.layout import SegmentLayout

#: for one example without pads: query (H, L, d), key and value (H, S, d), causal -> (H, L, d)
SlowForm = Callable[[Tensor, Tensor, Tensor, bool], Tensor]

#: for one example without pads: x (L, D), memory (S, D), their segments (L,) and (S,) -> (L, D)
SegmentForm = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def one_segment(mask: Tensor) -> SegmentLayout:
    """The layout of self-attention within a single segment; mask (B, L) bool, True for a real token."""
    return SegmentLayout(mask.long(), mask.long(), mask)


def assert_follows(attention: Attention, slow: SlowForm, lengths: tuple[int, ...] = (7, 1, 12)) -> None:
    """Examples of several lengths in one padded batch, pads full of noise, each against `slow` on its own."""

    def whole(x: Tensor, memory: Tensor, *segments: Tensor) -> Tensor:
        query = attention._split(attention.query(x[None]))[0]  # (H, L, d)
        key = attention._split(attention.key(memory[None]))[0]  # (H, S, d)
        value = attention._split(attention.value(memory[None]))[0]  # (H, S, d)
        gathered = slow(query, key, value, attention.causal)  # (H, L, d)
        return attention.output(attention._merge(gathered[None]))[0]  # (L, D)

    assert_follows_by_segment(attention, whole, lengths, segment=(999, 999))


def assert_follows_by_segment(
    attention: Attention,
    slow: SegmentForm,
    lengths: tuple[int, ...] = (7, 1, 12),
    segment: tuple[int, int] = (3, 5),
) -> None:
    """As `assert_follows`, for the whole module, with segments of the given token counts in text and source."""
    torch.manual_seed(3)
    attention = attention.double()
    width, longest = attention.heads * attention.head_width, max(lengths)
    x = torch.randn(len(lengths), longest, width, dtype=torch.double, requires_grad=True)
    source = torch.randn(len(lengths), longest + 4, width, dtype=torch.double, requires_grad=True)
    cross = attention.site == "cross"
    memory = source if cross else x
    real = torch.tensor(lengths)[:, None] + (4 if cross else 0)
    mask = torch.arange(memory.shape[1]) < real  # (B, S)
    query_segments = (torch.arange(longest) // segment[0]).expand(len(lengths), -1)  # (B, L)
    key_segments = (torch.arange(mask.shape[1]) // segment[1]).expand(len(lengths), -1) if cross else query_segments
    out = attention(x, memory, SegmentLayout(query_segments, key_segments, mask))  # (B, L, D)

    leaves = [x, memory, *(parameter for parameter in attention.parameters() if parameter.requires_grad)]
    loss = expected_loss = x.new_zeros(())
    for row, length in enumerate(lengths):
        keys = int(real[row])
        text = x[row, :length]
        answers = memory[row, :keys] if cross else text
        expected = slow(text, answers, query_segments[row, :length], key_segments[row, :keys])  # (L, D)
        torch.testing.assert_close(out[row, :length], expected, rtol=1e-9, atol=1e-10)
        weights = torch.randn_like(expected)
        loss = loss + (out[row, :length] * weights).sum()
        expected_loss = expected_loss + (expected * weights).sum()
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    wanted = torch.autograd.grad(expected_loss, leaves, allow_unused=True)
    for leaf, one, other in zip(leaves, found, wanted, strict=True):
        zeros = torch.zeros_like(leaf)
        torch.testing.assert_close(zeros if one is None else one, zeros if other is None else other)


@torch.no_grad()
def assert_steps_follow(attention: Attention, length: int, segments: Tensor | None = None) -> Any:
    """Two texts, a token at a time, get what all of their positions at once get; returns the state after the last.

    segments  (2, length) long; None: one segment
    """
    x = torch.randn(2, length, attention.heads * attention.head_width, dtype=torch.double)
    mask = torch.ones(2, length, dtype=torch.bool)
    segments = mask.long() if segments is None else segments
    expected = attention(x, x, SegmentLayout(segments, segments, mask))
    state = attention.init_state(x, mask, segments, 2)
    for position in range(length):
        out, state = attention.step(x[:, position], position, segments[:, position], state)
        torch.testing.assert_close(out, expected[:, position])
    return state


def weighted_rows(scores: Tensor, value: Tensor, causal: bool) -> Tensor:
    """sum_j s_ij V_j / sum_j s_ij, scores (H, L, S) not negative, value (H, S, d) -> (H, L, d)."""
    queries, keys = scores.shape[1:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril() if causal else torch.ones(queries, keys).bool()
    weights = scores * seen  # (H, L, S)
    total = weights.sum(-1, keepdim=True)  # (H, L, 1)
    return weights @ value / torch.where(total == 0, 1.0, total)  # (H, L, d)


def softmax_rows(scores: Tensor, value: Tensor, causal: bool) -> Tensor:
    """sum_j softmax_j(s_ij) V_j, scores (H, L, S), value (H, S, d) -> (H, L, d)."""
    return weighted_rows(scores.exp(), value, causal)
