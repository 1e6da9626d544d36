"""Attention within buckets, against loops over what each position may see."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.reformer import ReformerAttention
from tests.model.attention.equation import assert_follows, assert_steps_follow, one_segment


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("chunk", "buckets", "rounds"), [(1, 2, 1), (2, 4, 1), (1, 4, 3), (3, 2, 2), (2, 64, 2), (30, 2, 2)]
)
def test_a_token_sees_the_nearest_of_its_buckets(
    site: str, chunk: int, buckets: int, rounds: int, scaled: bool
) -> None:
    torch.manual_seed(1)
    attention = ReformerAttention(site, 16, 2, chunk, buckets, rounds, scaled)

    def selected(rows: Tensor, head: int, causal: bool) -> list[set[int]]:
        """The positions that each position of rows (L, d) sees, except itself."""
        chosen: list[set[int]] = [set() for _ in rows]
        for rotation in attention.rotations[head]:
            named = [int(torch.cat([row @ rotation, -(row @ rotation)]).argmax()) for row in rows]
            for i, name in enumerate(named):
                before = [j for j in range(i) if named[j] == name][-chunk:]
                after = [j for j in range(i + 1, len(rows)) if named[j] == name][:chunk]
                chosen[i] |= {*before, *([] if causal else after)}
        return chosen

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        heads = []
        for head, (q, v) in enumerate(zip(query, value, strict=True)):
            k, rows = q / q.norm(dim=-1, keepdim=True), []
            for i, others in enumerate(selected(q, head, causal)):
                seen = sorted(others) or [i]
                rows.append((q[i] @ k[seen].T / (math.sqrt(8) if scaled else 1)).softmax(-1) @ v[seen])
            heads.append(torch.stack(rows))
        return torch.stack(heads)

    assert_follows(attention, slow, lengths=(7, 1, 23))


def test_what_a_token_sees_does_not_depend_on_later_ones() -> None:
    torch.manual_seed(1)
    attention = ReformerAttention("decoder", 16, 2, chunk=2, buckets=4, rounds=2).double()
    x = torch.randn(1, 40, 16, dtype=torch.double)
    ones = torch.ones(1, 40)
    whole = attention(x, x, one_segment(ones.bool()))
    for length in (1, 5, 17, 39):
        start = x[:, :length]
        mask = ones[:, :length].bool()
        assert torch.allclose(attention(start, start, one_segment(mask)), whole[:, :length], atol=1e-12)


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
def test_steps_follow_over_many_buckets(scaled: bool) -> None:
    torch.manual_seed(1)
    attention = ReformerAttention("decoder", 16, 2, chunk=3, buckets=4, rounds=2, scaled=scaled).double()
    state = assert_steps_follow(attention, 100)
    assert state.inner.recent.shape == (2, 2, 2, 4, 3)


@pytest.mark.parametrize(
    ("option", "value"), [("chunk", 0), ("buckets", 3), ("buckets", 0), ("rounds", 0)], ids=lambda x: str(x)
)
def test_wrong_options_are_named(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "reformer", option: value}, "decoder", 16, 2)
