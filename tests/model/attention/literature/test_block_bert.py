"""Attention to one block a head, against loops over the keys that each position may see."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.block_bert import BlockBertAttention
from tests.model.attention.equation import assert_follows, weighted_rows


@pytest.mark.parametrize(
    ("shifted", "shifts"), [(0.0, [0, 0, 0, 0]), (0.25, [0, 0, 0, 1]), (0.6, [0, 1, -1, 2]), (1.0, [1, -1, 2, -2])]
)
@pytest.mark.parametrize("block", [1, 4, 5, 20])
def test_each_head_sees_its_block(block: int, shifted: float, shifts: list[int]) -> None:
    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        length = key.shape[1]
        blocks = math.ceil(length / block)
        seen = torch.zeros(4, length, length)
        for head, shift in enumerate(shifts):
            for i in range(length):
                for j in range(length):
                    seen[head, i, j] = (i // block + shift) % blocks == j // block
        return weighted_rows((query @ key.transpose(1, 2) / 2).exp() * seen, value, causal)

    assert_follows(BlockBertAttention("encoder", 16, 4, block, shifted), slow, lengths=(7, 1, 12))


def test_three_blocks_have_the_permutations_of_the_paper() -> None:
    attention = BlockBertAttention("encoder", 24, 12, shifted=1 / 3)
    permutations = [tuple((n + shift) % 3 + 1 for n in range(3)) for shift in attention.shifts]
    assert [permutations.count(one) for one in ((1, 2, 3), (2, 3, 1), (3, 1, 2))] == [8, 2, 2]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"block": 0}, "block is 0: it must be an int of at least 1"),
        ({"shifted": 1.5}, "shifted is 1.5: it must be a float from 0 to 1"),
        ({"shifted": -0.1}, "shifted is -0.1: it must be a float from 0 to 1"),
    ],
    ids=["block", "too many", "negative"],
)
def test_wrong_options_are_named(choice: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention({"name": "block_bert", **choice}, "encoder", 16, 2)
