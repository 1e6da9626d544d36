"""Compressed memories against [Rae 2020] algorithm 1 by loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.compressive import CompressiveAttention
from scaleformer.training.carried_memory import carrying
from tests.helpers import make_model
from tests.model.attention.equation import assert_steps_follow
from tests.model.attention.literature.test_transformer_xl import (
    Compress,
    assert_equal_piece_by_piece,
    assert_remembers,
)

#: piece, memory, compressed, rate
SHAPES = [(2, 2, 3, 2), (2, 4, 1, 2), (4, 2, 5, 2), (3, 0, 2, 3), (3, 3, 4, 1), (4, 4, 9, 2), (6, 3, 2, 3)]

each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def make(shape: tuple[int, int, int, int]) -> CompressiveAttention:
    """A seeded one in float64."""
    torch.manual_seed(1)
    return CompressiveAttention("decoder", 8, 2, *shape).double()


def by_loops(attention: CompressiveAttention) -> Compress:
    def compress(states: Tensor) -> list[Tensor]:
        return [states[n : n + attention.rate].mean(0) for n in range(0, len(states), attention.rate)]

    return compress


@each_shape
def test_all_pieces_at_once_equal_one_after_another(shape: tuple[int, int, int, int]) -> None:
    attention = make(shape)
    assert_equal_piece_by_piece(attention, by_loops(attention))


@each_shape
@torch.no_grad()
def test_steps_follow_and_their_state_does_not_grow(shape: tuple[int, int, int, int]) -> None:
    state = assert_steps_follow(make(shape), 23).inner
    piece, memory, compressed, _ = shape
    assert state.key.shape == (2, 2, piece + memory + compressed, 4)


@each_shape
def test_an_example_remembers_those_before_it(shape: tuple[int, int, int, int]) -> None:
    attention = make(shape)
    assert_remembers(attention, by_loops(attention))


def test_its_memory_is_carried() -> None:
    model = make_model(attention={"name": "compressive", "fallback": "softmax"})
    assert carrying(model) == [layer.attention for layer in model.decoder_layers]


@pytest.mark.parametrize(("option", "value"), [("piece", 0), ("memory", -1), ("compressed", 0), ("rate", 0)])
def test_wrong_options_are_named(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "compressive", option: value}, "decoder", 16, 2)


def test_groups_must_fill_the_pieces() -> None:
    with pytest.raises(ValueError, match="rate is 3: it must divide piece, 6, and memory, 4"):
        CompressiveAttention("decoder", 16, 2, piece=6, memory=4, compressed=2, rate=3)
