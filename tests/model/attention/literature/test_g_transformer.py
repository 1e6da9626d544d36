"""Group attention and its gate, against loops over the keys that each token sees."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.base import Attention
from scaleformer.model.attention.literature.g_transformer import Both, GTransformerAttention
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_follows_by_segment, assert_steps_follow

SITES = ("encoder", "decoder", "cross")


def slow_softmax(attention: Attention, x: Tensor, memory: Tensor, seen: list[list[int]]) -> Tensor:
    """Softmax attention of token i to the keys seen[i], zeros if there are none: (L, D)."""
    d = attention.head_width
    query, key, value = attention.query(x), attention.key(memory), attention.value(memory)
    rows = []
    for i, keys in enumerate(seen):
        heads = []
        for start in range(0, attention.heads * d, d):
            part = slice(start, start + d)
            weights = (query[i, part] @ key[keys, part].T / math.sqrt(d)).softmax(-1)
            heads.append(weights @ value[keys, part] if keys else torch.zeros_like(x[i, part]))
        rows.append(torch.cat(heads))
    return attention.output(torch.stack(rows))


@pytest.mark.parametrize("segment", [(3, 5), (2, 5), (1, 4), (4, 2), (99, 99)], ids=str)
@pytest.mark.parametrize("combined", [0, 1])
@pytest.mark.parametrize("site", SITES)
def test_tokens_see_their_segment_and_by_a_gate_the_rest(site: str, combined: int, segment: tuple[int, int]) -> None:
    torch.manual_seed(1)
    attention = GTransformerAttention(site, 16, 2, combined).double()

    def slow(x: Tensor, memory: Tensor, query_segments: Tensor, key_segments: Tensor) -> Tensor:
        near, all_keys = [], []
        for i, own in enumerate(query_segments.tolist()):
            keys = list(range(i + 1 if site == "decoder" else len(memory)))
            all_keys.append(keys)
            near.append([j for j in keys if key_segments[j] == own])
        group = slow_softmax(attention, x, memory, near)
        if attention.whole is None or attention.gate is None:
            return group
        whole = slow_softmax(attention.whole, x, memory, all_keys)
        both = torch.cat([group, whole], dim=-1) @ attention.gate.weight.T + attention.gate.bias
        gate = 1 / (1 + (-both).exp())
        return gate * group + (1 - gate) * whole

    assert_follows_by_segment(attention, slow, segment=segment)


def test_the_top_layers_alone_see_the_whole_document() -> None:
    model = make_model(attention={"name": "g_transformer", "combined": 1}, encoder_layers=3, decoder_layers=2)
    encoder = [layer.attention for layer in model.encoder_layers]
    decoder = [x for layer in model.decoder_layers for x in (layer.attention, layer.cross_attention)]
    assert [x.whole is not None for x in encoder] == [False, False, True]
    assert [x.whole is not None for x in decoder] == [False, False, True, True]
    saved = {name.split(".whole.")[0] for name in model.state_dict() if ".whole." in name}
    assert saved == {"encoder.2.attention", "decoder.1.attention", "decoder.1.cross_attention"}
    again = make_model(attention={"name": "g_transformer", "combined": 1}, encoder_layers=3, decoder_layers=2)
    again.load_state_dict(model.state_dict())
    deep = make_model(attention={"name": "g_transformer", "combined": 9})
    assert all(layer.attention.whole is not None for layer in deep.encoder_layers)


@torch.no_grad()
@pytest.mark.parametrize(("combined", "reaches"), [(0, False), (1, True)])
def test_another_segment_matters_where_layers_are_combined(combined: int, reaches: bool) -> None:
    model = make_model(attention={"name": "g_transformer", "combined": combined})
    batch = make_batch([([5, 3], [4, 4])])
    before = model.encode(batch.source, batch.source_mask, batch.source_segments).states
    batch.source[0, 7] = 5 + (batch.source[0, 7] - 4) % 15  # of the second segment
    after = model.encode(batch.source, batch.source_mask, batch.source_segments).states
    assert ((after - before)[0, :6].abs().amax() > 1e-6) == reaches


@torch.no_grad()
def test_steps_over_many_segments_keep_one() -> None:
    torch.manual_seed(1)
    attention = GTransformerAttention("decoder", 16, 2, combined=0).double()
    state = assert_steps_follow(attention, 300, torch.arange(300) // torch.tensor([[7], [11]]))
    assert state.inner.numbers.shape[1] == 64  # the initial slots are enough


def test_only_combined_layers_have_both_states() -> None:
    x, mask = torch.randn(2, 3, 16), torch.ones(2, 3).bool()
    for combined, site in ((n, site) for n in (0, 1) for site in SITES[1:]):
        attention = GTransformerAttention(site, 16, 2, combined)
        state = attention.init_state(x, mask, mask.long(), 4)
        assert isinstance(state, Both) == bool(combined)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"model.attention.combined is -1: it must be an int of at least 0"):
        build_attention({"name": "g_transformer", "combined": -1}, "encoder", 16, 2)
