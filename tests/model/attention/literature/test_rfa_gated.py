"""Random feature attention with a sentential gate, against the recurrence of its equation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature import rfa_gated
from scaleformer.model.attention.literature.rfa_gated import LEAST, RandomFeatureGatedAttention
from scaleformer.ops.segments.layout import SegmentLayout
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_follows_by_segment, assert_steps_follow

SITES = ("decoder", "cross")


def slow_form(attention: RandomFeatureGatedAttention, x: Tensor, memory: Tensor, segments: Tensor) -> Tensor:
    """Token by token and head by head: (L, D)."""
    d, m = attention.head_width, attention.feature_count
    query, key, value = attention.query(x), attention.key(memory), attention.value(memory)
    columns = []
    for head in range(attention.heads):
        part, scale = slice(head * d, (head + 1) * d), attention.log_scale[head].exp()

        def phi(row: Tensor, head: int = head, scale: Tensor = scale) -> Tensor:
            angles = [(w.double() @ row) / (row.norm() * scale) for w in attention.projection[head]]
            return torch.stack([f(a) for f in (torch.sin, torch.cos) for a in angles]) / math.sqrt(m)

        S, z = x.new_zeros(2 * m, d), x.new_zeros(2 * m)
        rows = []
        for j in range(len(memory)):
            gate = x.new_ones(())
            if attention.causal and j > 0 and segments[j] != segments[j - 1]:
                gate = 1 / (1 + (-(attention.gate.weight[head] @ x[j] + attention.gate.bias[head])).exp())
            feature = phi(key[j, part])
            if not attention.causal and attention.key_norms:
                norms = key[:, part].norm(dim=-1) / scale
                # the largest counts as a constant, which matters below the least denominator
                feature = feature * ((norms[j] ** 2 - norms.detach().max() ** 2) / (2 * d)).exp()
            S, z = gate * S + torch.outer(feature, value[j, part]), gate * z + feature
            rows.append((S, z))
        states = rows if attention.causal else [rows[-1]] * len(x)
        phi_q = [phi(query[i, part]) for i in range(len(x))]
        means = [(q @ S) / (q @ z).clamp(min=LEAST) for q, (S, z) in zip(phi_q, states, strict=True)]
        columns.append(torch.stack(means))  # (L, d)
    return attention.output(torch.cat(columns, dim=1))


@pytest.mark.parametrize(("features", "scale", "learned"), [(5, 1.0, True), (2, 0.4, True), (16, 0.7, False)])
@pytest.mark.parametrize("site", SITES)
def test_it_follows_the_recurrence(
    monkeypatch: pytest.MonkeyPatch, site: str, features: int, scale: float, learned: bool
) -> None:
    monkeypatch.setattr(rfa_gated, "SECTION", 5)  # several sections, the last one shorter
    torch.manual_seed(1)
    options = {"scale": scale, "learned_scale": learned, "gate_bias": 0.5, "key_norms": learned}
    attention = RandomFeatureGatedAttention(site, 16, 2, features, features + 1, **options)
    assert attention.log_scale.requires_grad == learned

    def slow(x: Tensor, memory: Tensor, query_segments: Tensor, key_segments: Tensor) -> Tensor:
        return slow_form(attention, x, memory, query_segments)

    assert_follows_by_segment(attention, slow)


def test_random_features_give_the_kernel_of_unit_vectors_on_average() -> None:
    torch.manual_seed(5)
    attention = RandomFeatureGatedAttention("cross", 16, 2, cross_features=40_000, scale=0.8).double()
    query, key = (torch.randn(1, 2, 20, 8, dtype=torch.double) for _ in range(2))
    found = attention.features(query) @ attention.features(key).mT
    q, k = (x / x.norm(dim=-1, keepdim=True) / 0.8 for x in (query, key))
    exponential = (q @ k.mT).exp()  # that of softmax attention, up to a factor
    torch.testing.assert_close(found, exponential / math.exp(1 / 0.8**2), rtol=0, atol=0.02)


@torch.no_grad()
def test_steps_follow_over_many_segments() -> None:
    torch.manual_seed(1)
    attention = RandomFeatureGatedAttention("decoder", 16, 2, decoder_features=8).double()
    state = assert_steps_follow(attention, 200, torch.arange(200) // torch.tensor([[7], [11]]))
    assert state.inner.memory.shape == (2, 2, 16, 9)


@torch.no_grad()
def test_a_shut_gate_leaves_each_segment_to_itself() -> None:
    torch.manual_seed(1)
    attention = RandomFeatureGatedAttention("decoder", 16, 2, decoder_features=64, gate_bias=-1e4).double()
    attention.gate.weight.zero_()
    x = torch.randn(1, 30, 16, dtype=torch.double)
    segments, mask = torch.arange(30)[None] // 10, torch.ones(1, 30).bool()
    whole = attention(x, x, SegmentLayout(segments, segments, mask))
    part = x[:, 20:]
    alone = attention(part, part, SegmentLayout(segments[:, 20:], segments[:, 20:], mask[:, 20:]))
    torch.testing.assert_close(whole[:, 20:], alone)


def test_directions_are_drawn_anew_in_each_pass_and_from_the_state_alone() -> None:
    choice = {"name": "rfa_gated", "decoder_features": 4, "fallback": "softmax"}
    model, batch = make_model(attention=choice).train(), make_batch([([3], [2])])
    attention = model.decoder_layers[0].attention
    drawn = []
    for _ in range(3):
        model.logits(model(batch)).square().mean().backward()
        drawn.append(attention.projection.clone())
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0][0], drawn[0][1])  # each head has its own
    again = make_model(attention=choice)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.decoder_layers[0].attention.projection, drawn[2])


@pytest.mark.parametrize(
    ("option", "value"),
    [("decoder_features", 0), ("cross_features", 0), ("redraw_every", -1), ("scale", 0.0), ("scale", -1.0)],
    ids=str,
)
def test_wrong_options_are_named(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "rfa_gated", option: value}, "decoder", 16, 2)
