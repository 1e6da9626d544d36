"""The window, global tokens and labels of ETC, against loops over the pairs of tokens."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature import etc
from scaleformer.model.attention.literature.etc import EtcAttention
from scaleformer.ops.segments.layout import SegmentLayout
from tests.model.attention.equation import assert_follows_by_segment


def slow_scores(attention: EtcAttention, head: int, query: Tensor, key: Tensor, segments: list[int]) -> Tensor:
    """The scores of all pairs of a head (L, L), minus infinity where nothing is seen."""
    length, horizon = len(segments), attention.relative_embedding.shape[1] // 2
    is_global = [i + 1 == length or segments[i + 1] != segments[i] for i in range(length)]
    order = sorted(set(segments))
    rows = []
    for i in range(length):
        row = []
        for j in range(length):
            same = segments[i] == segments[j]
            if is_global[i] and is_global[j]:
                apart = order.index(segments[j]) - order.index(segments[i])
                label = attention.segment_embedding[head, max(-horizon, min(horizon, apart)) + horizon]
            elif is_global[i] or is_global[j]:
                label = attention.belonging[int(is_global[i]), head, 0 if same else 1]
            else:
                label = attention.relative_embedding[head, max(-horizon, min(horizon, j - i)) + horizon]
            hidden = not is_global[i] and not is_global[j] and abs(j - i) > attention.radius
            hidden = hidden or (attention.hard and is_global[i] and not is_global[j] and not same)
            score = query[i] @ (key[j] + label) / math.sqrt(len(label))
            row.append(score - math.inf if hidden else score)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def slow(attention: EtcAttention, x: Tensor, segments: Tensor) -> Tensor:
    query, key, value = (f(x).unflatten(-1, (attention.heads, -1)) for f in
                         (attention.query, attention.key, attention.value))  # fmt: skip
    heads = []
    for head in range(attention.heads):
        scores = slow_scores(attention, head, query[:, head], key[:, head], segments.tolist())
        heads.append(scores.softmax(-1) @ value[:, head])
    return attention.output(torch.cat(heads, dim=-1))


@pytest.mark.parametrize("segment", [(3, 5), (1, 4), (4, 2), (99, 99)], ids=str)
@pytest.mark.parametrize(("radius", "horizon", "hard"), [(1, 2, False), (2, 1, True), (3, 5, False), (30, 2, True)])
def test_tokens_see_a_window_and_all_global_tokens(
    radius: int, horizon: int, hard: bool, segment: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    attention = EtcAttention("encoder", 16, 2, radius, horizon, hard)
    assert_follows_by_segment(attention, lambda x, memory, ours, theirs: slow(attention, x, ours), segment=segment)


def test_a_few_chunks_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    attention = EtcAttention("encoder", 16, 2, radius=2, horizon=2)
    monkeypatch.setattr(etc, "BLOCK_SCORES", 40)
    assert_follows_by_segment(attention, lambda x, memory, ours, theirs: slow(attention, x, ours), lengths=(17, 5))


def test_no_matrix_has_all_pairs_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of four segments: the numbers of the scores grow as its length does."""
    sizes: list[int] = []
    mix = etc.mix
    monkeypatch.setattr(etc, "mix", lambda scores, values: sizes.append(sum(x.numel() for x in scores))
                        or mix(scores, values))  # fmt: skip
    attention, totals = EtcAttention("encoder", 8, 1, radius=4), []
    for length in (200, 400):
        sizes.clear()
        segments = torch.arange(length)[None] // (length // 4)
        x = torch.randn(1, length, 8)
        attention(x, x, SegmentLayout(segments, segments))
        totals.append(sum(sizes))
    assert totals[1] < 2.05 * totals[0]
    assert totals[1] < 25 * 400


@pytest.mark.parametrize("option", ["radius", "horizon"])
def test_wrong_options_are_named(option: str) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is 0: it must be an int of at least 1"):
        build_attention({"name": "etc", option: 0}, "encoder", 16, 2)
