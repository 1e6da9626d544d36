"""The recurrence against processing piece by piece, with the states of the previous piece detached."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scaleformer.checkpoints.changed_attention import change_attention
from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.model.attention import build_attention, sinusoids
from scaleformer.model.attention.literature.transformer_xl import TransformerXLAttention
from scaleformer.model.attention.softmax import KeyValueCache
from tests.helpers import make_model
from tests.model.attention.equation import one_segment
from tests.runs import tokenizer

#: states (n, D) that leave the memory together, and the mean attention that each got -> those that stay
Compress = Callable[[Tensor, list[float]], list[Tensor]]


def piece_by_piece(attention: TransformerXLAttention, x: Tensor, compress: Compress | None = None) -> Tensor:
    """[Dai 2019] section 3.3 and [Rae 2020] algorithm 1 by loops: x (L, D) -> (L, D)."""
    heads, d, outputs = attention.heads, attention.head_width, []
    old: list[Tensor] = []
    usage = [0.0] * len(x)
    for start in range(0, len(x), attention.piece):
        first = max(0, start - attention.memory)
        left = range(max(0, start - attention.memory - attention.piece), first)
        if compress and left:
            old += compress(x[left.start : left.stop].detach(), [usage[j] / (start - j) for j in left])
        own = x[start : start + attention.piece]
        kept = old[max(0, len(old) - attention.compressed) :]
        states = torch.cat([*(m[None] for m in kept), x[first:start].detach(), own])  # (T, D)
        query, key, value = (
            f.view(-1, heads, d) for f in (attention.query(own), attention.key(states), attention.value(states))
        )
        for i in range(len(own)):
            scores = []
            seen = len(states) - len(own) + i + 1
            for j in range(seen):
                distance = torch.tensor([min(seen - 1 - j, attention.clamp or seen)])
                r = attention.position(sinusoids(distance, heads * d).double()).view(heads, d)
                content = ((query[i] + attention.content_bias) * key[j]).sum(-1)
                position = ((query[i] + attention.position_bias) * r).sum(-1)
                scores.append((content + position) / math.sqrt(d))
            weights = torch.stack(scores).softmax(0)  # (T, H)
            for j in range(first, start + i + 1):
                usage[j] += float(weights[len(kept) + j - first].detach().sum())
            outputs.append((weights[..., None] * value[: len(scores)]).sum(0).flatten())
    return attention.output(torch.stack(outputs))


def assert_equal_piece_by_piece(attention: TransformerXLAttention, compress: Compress | None = None) -> None:
    """Two texts of eleven tokens: the output and every gradient."""
    for bias in (attention.content_bias, attention.position_bias):
        torch.nn.init.normal_(bias)
    x = torch.randn(2, 11, 8, dtype=torch.double, requires_grad=True)
    out = attention(x, x, one_segment(torch.ones(2, 11, dtype=torch.bool)))
    expected = torch.stack([piece_by_piece(attention, row, compress) for row in x])
    torch.testing.assert_close(out, expected)
    leaves = [x, *attention.parameters()]
    found = torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True)
    wanted = torch.autograd.grad(expected.sin().sum(), leaves, allow_unused=True)
    for leaf, *pair in zip(leaves, found, wanted, strict=True):
        torch.testing.assert_close(*(torch.zeros_like(leaf) if g is None else g for g in pair))


def assert_steps_follow(attention: TransformerXLAttention) -> KeyValueCache:
    """The state after 23 steps, each of which gave what all positions at once give."""
    x, ones = torch.randn(2, 23, 8, dtype=torch.double), torch.ones(2, 23)
    expected = attention(x, x, one_segment(ones.bool()))
    state = attention.init_state(x, ones.bool(), ones.long(), 2)
    for position in range(23):
        out, state = attention.step(x[:, position], position, ones[:, 0].long(), state)
        torch.testing.assert_close(out, expected[:, position])
    return state.inner


@pytest.mark.parametrize("clamp", [0, 5])
def test_a_trained_model_takes_a_longer_memory(clamp: int) -> None:
    choice = {"name": "transformer_xl", "piece": 3, "memory": 2, "fallback": "softmax"}
    model, pieces = make_model(attention=choice).float(), tokenizer()
    trained = LoadedModel(model, pieces, pieces, {}, "", Path())
    attention = change_attention(trained, {"memory": 9, "clamp": clamp}).model.double().decoder_layers[0].attention
    for name, weight in model.decoder_layers[0].attention.state_dict().items():
        assert torch.equal(attention.state_dict()[name], weight.double())
    assert (attention.memory, attention.clamp) == (9, clamp)
    x, ones = torch.randn(1, 23, 32, dtype=torch.double), torch.ones(1, 23)
    expected = piece_by_piece(attention, x[0])
    torch.testing.assert_close(attention(x, x, one_segment(ones.bool()))[0], expected)
    state = attention.init_state(x, ones.bool(), ones.long(), 1)
    for position in range(23):
        out, state = attention.step(x[:, position], position, ones[:, 0].long(), state)
        torch.testing.assert_close(out[0], expected[position])


@pytest.mark.parametrize(("piece", "memory"), [(4, 4), (3, 5), (5, 0), (4, 1), (20, 2), (1, 1)])
def test_all_pieces_at_once_equal_one_after_another(piece: int, memory: int) -> None:
    torch.manual_seed(1)
    assert_equal_piece_by_piece(TransformerXLAttention("decoder", 8, 2, piece, memory).double())


@torch.no_grad()
def test_steps_follow_and_their_state_does_not_grow() -> None:
    torch.manual_seed(1)
    state = assert_steps_follow(TransformerXLAttention("decoder", 8, 2, 3, 2).double())
    assert state.key.shape == (2, 2, 5, 4)


@pytest.mark.parametrize(("option", "value"), [("piece", 0), ("memory", -1), ("clamp", -1)])
def test_wrong_options_are_named(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "transformer_xl", option: value}, "decoder", 16, 2)
