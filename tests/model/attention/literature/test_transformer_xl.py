"""The recurrence against processing piece by piece, with the states of the previous piece detached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scaleformer.checkpoints.changed_attention import change_attention
from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.transformer_xl import TransformerXLAttention
from scaleformer.model.attention.positions import sinusoids
from tests.helpers import make_model
from tests.model.attention.equation import assert_steps_follow, one_segment
from tests.runs import tokenizer

#: states (n, D) that leave the memory together -> those that stay
Compress = Callable[[Tensor], list[Tensor]]


def piece_by_piece(
    attention: TransformerXLAttention, x: Tensor, compress: Compress | None = None, former: Tensor | None = None
) -> Tensor:
    """[Dai 2019] section 3.3 and [Rae 2020] algorithm 1 by loops: x (L, D) -> (L, D), after former (T, D) of its
    document, whose pieces end where x begins; groups that are not whole are left out."""
    heads, d, outputs = attention.heads, attention.head_width, []
    old: list[Tensor] = []
    begin = 0 if former is None else len(former)
    x = x if former is None else torch.cat([former, x])
    for start in range(begin % attention.piece - attention.piece * (begin > 0), len(x), attention.piece):
        first = max(0, start - attention.memory)
        left = range(max(0, start - attention.memory - attention.piece), first)
        if compress and left:
            missing = -len(left) % attention.rate
            states = torch.cat([x.new_zeros(missing, x.shape[1]), x[left.start : left.stop].detach()])
            old += compress(states)[missing > 0 :]
        if start < begin:
            continue
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


#: rows, batch by batch: the tokens of an example, and whether it continues the one before
ROWS = [[(5, 0), (7, 0), (1, 0)], [(4, 1), (6, 1), (8, 0)], [(2, 1), (9, 1)], [(1, 1), (3, 0)], [(11, 1)], [(2, 0)]]
Examples = tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]


def consecutive_batches(attention: TransformerXLAttention) -> Iterator[Examples]:
    """Batches of `ROWS`, for which `attention` is ready: x (B, L, D), its mask (B, L), whose pads hold numbers, and of
    each row its tokens and all tokens before them."""
    former = [torch.zeros(0, 8, dtype=torch.double)] * 3
    for rows in ROWS:
        lengths, continues = (torch.tensor(numbers) for numbers in zip(*rows, strict=True))
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        x = torch.randn(*mask.shape, 8, dtype=torch.double, requires_grad=True)
        attention.carry(continues.bool())
        texts = [row[:length] for row, (length, _) in zip(x, rows, strict=True)]
        former = [old if goes_on else old[:0] for old, (_, goes_on) in zip(former, rows, strict=False)]
        yield x, mask, list(zip(texts, former, strict=True))
        former = [torch.cat(pair).detach() for pair in zip(former, texts, strict=True)]


def assert_remembers(attention: TransformerXLAttention, compress: Compress | None = None) -> None:
    """Output and gradients over `consecutive_batches`, against each row with all that came before it."""
    for bias in (attention.content_bias, attention.position_bias):
        torch.nn.init.normal_(bias)
    for x, mask, examples in consecutive_batches(attention):
        out = attention(x, x, one_segment(mask))[mask]
        expected = torch.cat([piece_by_piece(attention, text, compress, old) for text, old in examples])
        torch.testing.assert_close(out, expected)
        leaves = [x, *attention.parameters()]
        found, wanted = (torch.autograd.grad(y.sin().sum(), leaves, allow_unused=True) for y in (out, expected))
        for leaf, *pair in zip(leaves, found, wanted, strict=True):
            torch.testing.assert_close(*(torch.zeros_like(leaf) if g is None else g for g in pair))


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
    assert_steps_follow(attention, 23)


@pytest.mark.parametrize(("piece", "memory"), [(4, 4), (3, 5), (5, 0), (4, 1), (20, 2), (1, 1)])
def test_all_pieces_at_once_equal_one_after_another(piece: int, memory: int) -> None:
    torch.manual_seed(1)
    assert_equal_piece_by_piece(TransformerXLAttention("decoder", 8, 2, piece, memory).double())


@torch.no_grad()
def test_steps_follow_and_their_state_does_not_grow() -> None:
    torch.manual_seed(1)
    state = assert_steps_follow(TransformerXLAttention("decoder", 8, 2, 3, 2).double(), 23).inner
    assert state.key.shape == (2, 2, 5, 4)


@pytest.mark.parametrize(("option", "value"), [("piece", 0), ("memory", -1), ("clamp", -1)])
def test_wrong_options_are_named(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "transformer_xl", option: value}, "decoder", 16, 2)


@pytest.mark.parametrize(("piece", "memory"), [(4, 4), (3, 5), (5, 0), (4, 1), (20, 2), (1, 1), (2, 9)])
def test_an_example_remembers_those_before_it(piece: int, memory: int) -> None:
    torch.manual_seed(1)
    assert_remembers(TransformerXLAttention("decoder", 8, 2, piece, memory).double())


def test_a_document_cut_where_a_piece_ends_is_read_as_a_whole() -> None:
    torch.manual_seed(1)
    attention = TransformerXLAttention("decoder", 8, 2, 4, 6).double()
    x, layout = torch.randn(1, 19, 8, dtype=torch.double), one_segment(torch.ones(1, 19, dtype=torch.bool))
    whole, parts = attention(x, x, layout), []
    for start, stop in ((0, 8), (8, 12), (12, 19)):
        attention.carry(torch.tensor([start > 0]))
        part = x[:, start:stop]
        parts.append(attention(part, part, one_segment(torch.ones(1, stop - start, dtype=torch.bool))))
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    left = attention.carried
    attention.carry(None)  # a validation between two steps sees nothing, and changes nothing
    torch.testing.assert_close(attention(x, x, layout), whole)
    assert attention.carried is left


def test_what_a_skipped_step_left_is_forgotten() -> None:
    torch.manual_seed(1)
    attention = TransformerXLAttention("decoder", 8, 2, 2, 2).double()
    x, layout = torch.randn(2, 5, 8, dtype=torch.double), one_segment(torch.ones(2, 5, dtype=torch.bool))
    bad = x.clone()
    bad[0, 4] = torch.inf
    attention.carry(torch.tensor([False, False]))
    attention(bad, bad, layout)
    attention.carry(torch.tensor([True, True]))
    out = attention(x, x, layout)
    torch.testing.assert_close(out[0], piece_by_piece(attention, x[0]))
    torch.testing.assert_close(out[1], piece_by_piece(attention, x[1], former=x[1]))
