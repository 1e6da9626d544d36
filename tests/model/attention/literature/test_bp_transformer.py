"""Attention from fine to coarse, against loops over spans that look for their own way through the text."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.bp_transformer import BPTransformerAttention, borders, plan
from tests.model.attention.equation import assert_follows, assert_steps_follow


def spans_seen(i: int, length: int, near: int, levels: int, causal: bool) -> list[range]:
    """The tokens of each span: from i to the left token by token, then by longer spans at their borders."""
    seen, left, right = [], i + 1, i + 1
    for level in range(levels + 1):
        size, count = 2**level, 0
        while left > 0 and (count < near or left % (2 * size)):
            left, count = left - size, count + 1
            seen.append(range(left, left + size))
        count = 0
        while right < length and not causal and (count < near or right % (2 * size)):
            seen.append(range(right, min(right + size, length)))
            right, count = right + size, count + 1
    return seen


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(("near", "levels"), [(1, 16), (2, 3), (3, 1), (2, 0), (40, 2)])
def test_spans_follow_the_equation(site: str, near: int, levels: int) -> None:
    torch.manual_seed(2)
    attention = BPTransformerAttention(site, 16, 2, near, levels)
    torch.nn.init.normal_(attention.salience)

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        rows = []
        for head in range(2):
            share = (key[head] @ attention.salience[head] / math.sqrt(8)).exp()  # (S,)
            for i, q in enumerate(query[head]):
                total, mean = 0.0, torch.zeros(8)
                for span in spans_seen(i, len(share), near, levels, causal):
                    weights = share[list(span)] / share[list(span)].sum()
                    score = (q @ (weights @ key[head, list(span)]) / math.sqrt(8)).exp()
                    total, mean = total + score, mean + score * (weights @ value[head, list(span)])
                rows.append(mean / total)
        return torch.stack(rows).view(query.shape)

    assert_follows(attention, slow, lengths=(7, 1, 21))


@pytest.mark.parametrize("near", [1, 2, 5])
def test_each_token_is_seen_once_by_few_spans(near: int) -> None:
    length, levels = 300, 9
    for i in range(0, length, 7):
        tokens: list[int] = []
        for level, (first, end, begin, last) in enumerate(borders(i, near, levels)):
            assert max(end - first, last - begin) <= near + 1
            for number in (*range(first, end), *range(begin, last)):
                tokens += range(number << level, min((number + 1) << level, length))
        assert sorted(tokens) == list(range(length))


def test_a_chunk_reads_few_more_spans_than_its_queries_see() -> None:
    for length in (1000, 8000):
        sizes = [-(-length // 2**level) for level in range(14)]
        index, seen = plan(length, 4, False, sizes)
        assert seen.shape[2] == index.shape[1] <= 2 * 64 + 14 * 24


def test_the_decoding_state_does_not_grow() -> None:
    attention = BPTransformerAttention("decoder", 16, 2, near=3, levels=4)
    state = attention.empty_state(2, torch.zeros(1))
    for position in range(20):
        x = torch.randn(2, 2, 8)
        with torch.no_grad():
            _, state = attention.attend_step(x, x, x, position, torch.zeros(2).long(), state)
    assert state.value.shape == (2, 2, 5 * 8, 8)


@torch.no_grad()
@pytest.mark.parametrize(("near", "levels"), [(1, 8), (3, 3)])
def test_many_steps_equal_the_whole(near: int, levels: int) -> None:
    torch.manual_seed(4)
    attention = BPTransformerAttention("decoder", 8, 2, near, levels).double()
    torch.nn.init.normal_(attention.salience)
    assert_steps_follow(attention, 200)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"near": 0}, "near is 0: it must be an int of"),
        ({"levels": -1}, "levels is -1: it must be an int of"),
    ],
    ids=["near", "levels"],
)
def test_wrong_options_are_named(choice: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention({"name": "bp_transformer", **choice}, "encoder", 16, 2)
