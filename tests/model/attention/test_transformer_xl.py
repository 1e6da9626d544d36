"""The recurrence against one piece after the other, with the states of the piece before detached."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention, sinusoids
from scaleformer.model.attention.transformer_xl import TransformerXLAttention


def piece_by_piece(attention: TransformerXLAttention, x: Tensor) -> Tensor:
    """[Dai 2019] section 3.3 by loops: x (L, D) -> (L, D)."""
    heads, d, outputs = attention.heads, attention.head_width, []
    for start in range(0, len(x), attention.piece):
        first = max(0, start - attention.memory)
        own = x[start : start + attention.piece]
        states = torch.cat([x[first:start].detach(), own])  # (T, D)
        query, key, value = (
            f.view(-1, heads, d) for f in (attention.query(own), attention.key(states), attention.value(states))
        )
        for i in range(len(own)):
            scores = []
            for j in range(start - first + i + 1):
                distance = torch.tensor([start - first + i - j])
                r = attention.position(sinusoids(distance, heads * d).double()).view(heads, d)
                content = ((query[i] + attention.content_bias) * key[j]).sum(-1)
                position = ((query[i] + attention.position_bias) * r).sum(-1)
                scores.append((content + position) / math.sqrt(d))
            weights = torch.stack(scores).softmax(0)  # (T, H)
            outputs.append((weights[..., None] * value[: len(scores)]).sum(0).flatten())
    return attention.output(torch.stack(outputs))


@pytest.mark.parametrize(("piece", "memory"), [(4, 4), (3, 5), (5, 0), (4, 1), (20, 2), (1, 1)])
def test_all_pieces_at_once_are_one_after_the_other(piece: int, memory: int) -> None:
    torch.manual_seed(1)
    attention = TransformerXLAttention("decoder", 8, 2, piece, memory).double()
    for bias in (attention.content_bias, attention.position_bias):
        torch.nn.init.normal_(bias)
    x = torch.randn(2, 11, 8, dtype=torch.double, requires_grad=True)
    mask = torch.ones(2, 11, dtype=torch.bool)
    out = attention(x, x, mask, mask.long(), mask.long())
    expected = torch.stack([piece_by_piece(attention, row) for row in x])
    torch.testing.assert_close(out, expected)
    leaves = [x, *attention.parameters()]
    found = torch.autograd.grad(out.sin().sum(), leaves)
    for one, other in zip(found, torch.autograd.grad(expected.sin().sum(), leaves), strict=True):
        torch.testing.assert_close(one, other)


def test_the_decoding_state_does_not_grow() -> None:
    attention = TransformerXLAttention("decoder", 16, 2, piece=3, memory=2)
    state = attention.empty_state(2, torch.zeros(1))
    for position in range(20):
        x = torch.randn(2, 2, 8)
        _, state = attention.attend_step(x, x, x, position, torch.zeros(2).long(), state)
    assert state.key.shape == (2, 2, 5, 8)


@pytest.mark.parametrize(("option", "value"), [("piece", 0), ("memory", -1)])
def test_what_does_not_fit_is_named(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "transformer_xl", option: value}, "decoder", 16, 2)
