"""The levels of Hibert, against loops over tokens and segments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.hibert import HibertAttention
from scaleformer.model.attention.positions import sinusoids
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_follows_by_segment, one_segment
from tests.model.attention.literature.test_g_transformer import slow_softmax

SITES = ("encoder", "decoder")


def slow(attention: HibertAttention, x: Tensor, segments: list[int]) -> Tensor:
    """(L, D) -> (L, D)"""
    length, causal = len(segments), attention.causal
    keys = [[j for j in range(i + 1 if causal else length) if segments[j] == segments[i]] for i in range(length)]
    group = slow_softmax(attention, x, x, keys)
    ends = [i for i in range(length) if i + 1 == length or segments[i + 1] != segments[i]]
    numbers = torch.tensor([segments[e] for e in ends])
    summary = torch.stack([x[e] + group[e] for e in ends]) + sinusoids(numbers, x.shape[1])
    every = range(len(ends))
    among = slow_softmax(attention.among, summary, summary, [[m for m in every if not causal or m <= n] for n in every])
    seen = [[n for n in every if not causal or segments[ends[n]] < segments[i]] for i in range(length)]
    return group + slow_softmax(attention.back, x, summary + among, seen)


@pytest.mark.parametrize("segment", [(3, 5), (2, 5), (1, 4), (4, 2), (99, 99)], ids=str)
@pytest.mark.parametrize("site", SITES)
def test_the_document_comes_back_to_the_tokens(site: str, segment: tuple[int, int]) -> None:
    torch.manual_seed(1)
    attention = HibertAttention(site, 16, 2)
    assert_follows_by_segment(
        attention, lambda x, memory, ours, theirs: slow(attention, x, ours.tolist()), segment=segment
    )


@torch.no_grad()
def test_steps_over_many_segments_keep_one_and_summaries() -> None:
    """Rows whose segments end at different positions, more of them than the tables have room for at first, and whose
    numbers leave some out, as after a separator that counts two."""
    torch.manual_seed(1)
    attention = HibertAttention("decoder", 16, 2).double()
    x = torch.randn(2, 300, 16, dtype=torch.double)
    segments = torch.arange(300) // torch.tensor([[7], [11]])
    segments += (segments > 4).long()
    state = attention.init_state(x, torch.ones(2, 300).bool(), segments, 2)
    found = []
    for position in range(300):
        out, state = attention.step(x[:, position], position, segments[:, position], state)
        found.append(out)
    for row in range(2):
        torch.testing.assert_close(torch.stack(found, 1)[row], slow(attention, x[row], segments[row].tolist()))
    assert state.group.inner.numbers.shape[1] == 64  # the initial slots are enough
    assert state.count.tolist() == [42, 27]
    assert [table.shape[2] for table in state.tables] == [64] * 4


@torch.no_grad()
def test_a_single_segment_sees_its_document_in_the_encoder_alone() -> None:
    torch.manual_seed(1)
    x = torch.randn(1, 5, 16, dtype=torch.double)
    for site in SITES:
        attention = HibertAttention(site, 16, 2).double()
        before = attention(x, x, one_segment(torch.ones(1, 5).bool()))
        torch.nn.init.zeros_(attention.back.output.weight)
        after = attention(x, x, one_segment(torch.ones(1, 5).bool()))
        assert torch.equal(before, after) == (site == "decoder")


@torch.no_grad()
def test_words_of_another_segment_reach_all_others() -> None:
    model = make_model(attention={"name": "hibert", "fallback": {"name": "softmax"}}, encoder_layers=1)
    batch = make_batch([([5, 3, 2], [4, 4])])
    before = model.encode(batch.source, batch.source_mask, batch.source_segments).states
    batch.source[0, 7] = 5 + (batch.source[0, 7] - 4) % 15  # of the second segment
    after = model.encode(batch.source, batch.source_mask, batch.source_segments).states
    assert ((after - before)[0].abs().amax(-1) > 1e-9).all()


def test_it_has_no_cross_attention() -> None:
    with pytest.raises(ValueError, match="attention 'hibert' cannot serve the cross site"):
        build_attention({"name": "hibert"}, "cross", 16, 2)
