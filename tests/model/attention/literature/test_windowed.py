"""Windowed mechanisms against loops over the keys that each position may see."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.bigbird import BigBirdAttention, draw
from scaleformer.model.attention.literature.longformer import LongformerAttention
from scaleformer.model.attention.literature.sparse import SparseAttention
from scaleformer.ops.softmax.windowed import windowed_attention
from tests.helpers import make_model
from tests.model.attention.equation import assert_follows, assert_follows_by_segment, assert_steps_follow, weighted_rows


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(("window", "few"), [(1, 0), (2, 1), (3, 2), (5, 0), (30, 4)])
def test_longformer_sees_its_window_and_the_global_tokens(site: str, window: int, few: int) -> None:
    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        seen = torch.zeros(query.shape[1], key.shape[1])
        for i in range(query.shape[1]):
            for j in range(key.shape[1]):
                seen[i, j] = abs(j - i) <= window or j < few or i < few
        scores = (query @ key.transpose(1, 2) / math.sqrt(8)).exp() * seen
        return weighted_rows(scores, value, causal)

    assert_follows(LongformerAttention(site, 16, 2, window, few), slow)


LONGFORMERS = {
    "dilated": {"dilation": 2, "dilated_heads": 1},
    "all dilated": {"dilation": 3, "dilated_heads": 3, "global_tokens": 2},
    "segments": {"segment_tokens": True},
    "dilated, segments": {"segment_tokens": True, "global_tokens": 0, "dilation": 2, "dilated_heads": 2},
    "projections": {"global_projections": True, "global_tokens": 2},
    "all": {"global_projections": True, "segment_tokens": True, "dilation": 2, "dilated_heads": 1},
}


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("options", LONGFORMERS.values(), ids=list(LONGFORMERS))
def test_longformer_sees_what_its_options_say(site: str, options: dict) -> None:
    attention = LongformerAttention(site, 12, 3, window=2, **options)
    chosen = {"global_tokens": 1, "segment_tokens": False, "dilation": 1, "dilated_heads": 0, **options}
    own = site == "encoder" and "global_projections" in options
    if own:
        for name in ("query", "key", "value"):
            assert torch.equal(getattr(attention, f"global_{name}").weight, getattr(attention, name).weight)
            torch.nn.init.normal_(getattr(attention, f"global_{name}").weight)

    def slow(x: Tensor, memory: Tensor, segments: Tensor, _: Tensor) -> Tensor:
        near = [f(x).view(-1, 3, 4) for f in (attention.query, attention.key, attention.value)]  # (L, H, d) each
        far = [getattr(attention, f"global_{n}")(x).view(-1, 3, 4) for n in ("query", "key", "value")] if own else near
        begins = [i == 0 or bool(segments[i] > segments[i - 1]) for i in range(len(x))]
        marked = [i < chosen["global_tokens"] or (chosen["segment_tokens"] and begins[i]) for i in range(len(x))]
        out = []
        for i in range(len(x)):
            everywhere = marked[i] and site == "encoder"
            query, key, value = far if everywhere else near
            for h in range(3):
                step = chosen["dilation"] if h >= 3 - chosen["dilated_heads"] else 1
                seen = []
                for j in range(len(x) if site == "encoder" else i + 1):
                    if everywhere or marked[j] or (abs(j - i) <= 2 * step and (j - i) % step == 0):
                        seen.append(j)
                weights = torch.stack([(query[i, h] * key[j, h]).sum() / 2 for j in seen]).softmax(0)
                out.append(weights @ value[seen, h])
        return attention.output(torch.stack(out).view(-1, 12))

    assert_follows_by_segment(attention, slow, lengths=(7, 1, 14))


@pytest.mark.parametrize("options", LONGFORMERS.values(), ids=list(LONGFORMERS))
def test_longformer_steps_with_its_options(options: dict) -> None:
    torch.manual_seed(1)
    attention = LongformerAttention("decoder", 6, 3, window=2, **options).double()
    segments = (torch.rand(2, 90) < torch.tensor([[0.9], [0.3]])).cumsum(1)  # more than the state has room for at first
    assert_steps_follow(attention, 90, segments)


def test_windows_and_dilations_of_longformer_grow_with_the_layer() -> None:
    def placed(layer: int, layers: int, **options: int) -> tuple[int, int]:
        place = {"layer": layer, "layers": layers}
        attention = LongformerAttention("encoder", 16, 2, window=16, dilation=4, dilated_heads=1, **options, **place)
        return attention.window, attention.dilation

    assert [placed(n, 3, bottom_window=4) for n in range(3)] == [(4, 1), (8, 2), (16, 4)]
    assert [placed(n, 2) for n in range(2)] == [(16, 4), (16, 4)]
    assert placed(0, 1, bottom_window=4) == (16, 4)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("stride", [1, 3, 5, 30])
@pytest.mark.parametrize("pattern", ["strided", "fixed"])
@pytest.mark.parametrize(("factors", "layer"), [("heads", 0), ("layers", 0), ("layers", 1), ("merged", 0), ("auto", 0)])
def test_sparse_sees_its_pattern(site: str, stride: int, pattern: str, factors: str, layer: int) -> None:
    attention = SparseAttention(site, 24, 3, pattern, stride, min(2, stride), factors, layer)
    if factors == "auto":
        factors = "heads" if pattern == "strided" else "merged"

    def sees(head: int, i: int, j: int) -> bool:
        if pattern == "fixed":
            both = i // stride == j // stride, j % stride >= stride - min(2, stride)
        else:
            both = abs(j - i) <= stride, (j - i) % stride == 0
        return any(both) if factors == "merged" else both[head // 2 if factors == "heads" else layer]

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        pairs = [[[sees(h, i, j) for j in range(key.shape[1])] for i in range(query.shape[1])] for h in range(3)]
        scores = (query @ key.transpose(1, 2) / math.sqrt(8)).exp() * torch.tensor(pairs)
        return weighted_rows(scores, value, causal)

    assert_follows(attention, slow)
    if site == "decoder":
        assert_steps_follow(attention, 12)


@pytest.mark.parametrize(("block", "count"), [(1, 2), (2, 0), (2, 3), (3, 1), (20, 2)])
def test_bigbird_sees_neighbouring_first_and_drawn_blocks(block: int, count: int) -> None:
    attention = BigBirdAttention("encoder", 16, 2, block, count)

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        length = key.shape[1]
        blocks = -(-length // block)
        drawn = draw(torch.tensor([blocks]), blocks, count, attention.seeds)[0][0]  # (H, N, r)
        seen = torch.zeros(2, length, length)
        for h in range(2):
            for i in range(length):
                for j in range(length):
                    a, b = i // block, j // block
                    seen[h, i, j] = abs(a - b) <= 1 or a == 0 or b == 0 or b in drawn[h, a].tolist()
        return weighted_rows((query @ key.transpose(1, 2) / math.sqrt(8)).exp() * seen, value, causal)

    assert_follows(attention, slow, lengths=(7, 1, 15))


def test_drawn_blocks_are_spread_and_belong_to_the_text() -> None:
    chosen, new = draw(torch.tensor([40, 7]), 40, 2, torch.tensor([0, 5]))
    assert chosen[0].max() < 40
    assert chosen[1].max() < 7
    for head in range(2):
        assert len(set(chosen[0, head].flatten().tolist())) > 20
    assert new[0].float().mean() > 0.7
    shorter, _ = draw(torch.tensor([7]), 7, 2, torch.tensor([0, 5]))
    assert torch.equal(shorter[0], chosen[1, :, :7])


def test_each_layer_and_head_of_bigbird_draws_for_itself_and_for_good() -> None:
    choice = {"name": "bigbird", "block": 2, "fallback": "softmax"}
    model = make_model(attention=choice, encoder_layers=2)
    seeds = torch.cat([layer.attention.seeds for layer in model.encoder_layers])
    chosen = draw(torch.tensor([60]), 60, 2, seeds)[0][0]  # (layers H, N, r)
    for n, one in enumerate(chosen):
        assert all((one != other).float().mean() > 0.8 for other in chosen[:n])
    again = make_model(attention=choice, encoder_layers=2)
    again.load_state_dict(model.state_dict())
    assert torch.equal(torch.cat([layer.attention.seeds for layer in again.encoder_layers]), seeds)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_pads_anywhere_and_rows_without_keys(causal: bool) -> None:
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 1, 7, 4, dtype=torch.double, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[1, 0, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]]).bool()
    out = windowed_attention(q, k, v, 2, 1, causal=causal, key_mask=mask)
    distance = torch.arange(7) - torch.arange(7)[:, None]
    seen = (distance.abs() <= 2) | (torch.arange(7) == 0) | (not causal) * (torch.arange(7)[:, None] == 0)
    scores = (q[0] @ k[0].transpose(1, 2) / 2).exp() * (seen & mask[0])
    torch.testing.assert_close(out[0], weighted_rows(scores, v[0], causal))
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_the_decoding_state_does_not_grow() -> None:
    attention = LongformerAttention("decoder", 16, 2, window=3, global_tokens=1)
    state = attention.empty_state(2, torch.zeros(1))
    for position in range(20):
        x = torch.randn(2, 2, 8)
        _, state = attention.attend_step(x, x, x, position, torch.zeros(2).long(), state)
    assert state.key.shape == (2, 2, 5, 8)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"name": "longformer", "window": 0}, "window is 0"),
        ({"name": "longformer", "global_tokens": -1}, "global_tokens is -1"),
        ({"name": "longformer", "bottom_window": -1}, "bottom_window is -1"),
        ({"name": "longformer", "global_tokens": 0, "global_projections": True}, "but no token is global"),
        ({"name": "longformer", "dilation": 0}, "dilation is 0"),
        ({"name": "longformer", "dilated_heads": 3}, "dilated_heads is 3: it must be at most 2"),
        ({"name": "bigbird", "block": 0}, "block is 0"),
        ({"name": "bigbird", "random_blocks": -1}, "random_blocks is -1"),
        ({"name": "sparse", "pattern": "random"}, "it must be one of strided, fixed"),
        ({"name": "sparse", "factors": "rows"}, "it must be one of auto, heads, layers, merged"),
        ({"name": "sparse", "stride": 4, "summaries": 5}, "summaries is 5: it must be at most the stride, 4"),
    ],
)
def test_wrong_options_are_named(choice: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention(choice, "encoder", 16, 2)
