"""Gated softmax against the double loop of its equation, values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.softmax_gated import SoftmaxGatedAttention
from scaleformer.ops.segments.layout import SegmentLayout

HEADS, WIDTH = 2, 3


def loop(attention: SoftmaxGatedAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, asking: Tensor, told: Tensor):
    """The equation, pair by pair."""
    reach = attention.log_gate.shape[1] // 2
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        for h in range(HEADS):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if mask[b, j] and not (attention.causal and j > i)]
                distance = {j: int(told[b, j]) - int(asking[b, i]) for j in seen}
                far = sum(abs(x) >= reach for x in distance.values())
                scores = {}
                for j in seen:
                    key = k[b, h, j]
                    if attention.site != "cross":
                        horizon = attention.relative_embedding.shape[1] // 2
                        key = key + attention.relative_embedding[h, max(-horizon, min(horizon, j - i)) + horizon]
                    gate = attention.log_gate[h, max(-reach, min(reach, distance[j])) + reach].exp()
                    scale = min(1.0, attention.far_tokens / far) if abs(distance[j]) >= reach else 1.0
                    scores[j] = gate * scale * torch.exp(q[b, h, i] @ key / math.sqrt(WIDTH))
                total = sum(scores.values())
                out[b, h, i] = sum(score * v[b, h, j] for j, score in scores.items()) / total
    return out


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_equals_the_double_loop_with_all_gradients(site: str) -> None:
    torch.manual_seed(3)
    attention = SoftmaxGatedAttention(site, HEADS * WIDTH, HEADS, horizon=2, reach=2, far_tokens=1.5).double()
    with torch.no_grad():
        attention.log_gate.normal_()
    queries, keys = (7, 9) if site == "cross" else (9, 9)
    q, k, v = (torch.randn(2, HEADS, n, WIDTH, dtype=torch.double, requires_grad=True) for n in (queries, keys, keys))
    told = torch.tensor([[0, 0, 1, 1, 1, 2, 3, 3, 4], [0, 1, 2, 3, 4, 4, 4, 5, 5]])
    asking = torch.tensor([[0, 1, 1, 3, 4, 5, 6], [0, 0, 0, 0, 1, 1, 2]]) if site == "cross" else told
    mask = torch.ones(2, keys, dtype=torch.bool)
    mask[1, -2:] = site == "decoder"  # causal attention needs no mask: its pads follow every real query

    found = attention.attend(q, k, v, SegmentLayout(asking, told, mask))
    expected = loop(attention, q, k, v, mask, asking, told)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)

    leaves = [q, k, v, attention.log_gate, *([] if site == "cross" else [attention.relative_embedding])]
    weight = torch.randn_like(found)
    for a, b in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"model.attention.reach is 0"):
        build_attention({"name": "softmax_gated", "reach": 0}, "encoder", 8, 2)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_a_query_without_a_key_gets_zeros_and_finite_gradients(site: str) -> None:
    torch.manual_seed(4)
    attention = SoftmaxGatedAttention(site, HEADS * WIDTH, HEADS)
    q, k, v = (torch.randn(2, HEADS, 3, WIDTH, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[True, True, False], [False, False, False]])
    segments = torch.zeros(2, 3, dtype=torch.long)
    out = attention.attend(q, k, v, SegmentLayout(segments, segments, mask))
    assert out[0].abs().min() > 0
    assert out[1].abs().max() == 0
    out.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v, attention.log_gate))


def test_gates_that_underflow_are_weighed_all_the_same() -> None:
    """Far keys only, with gates of at most e^-200: the inverse of their sum was infinite, and hidden keys were seen."""
    torch.manual_seed(0)
    attention = SoftmaxGatedAttention("cross", 16, 2, reach=2)
    with torch.no_grad():
        attention.log_gate.copy_(torch.tensor([-200.0, -150.0, 0.0, -150.0, -300.0]).expand(2, -1))
    attention = attention.double()
    query, key, value = (torch.randn(1, 2, length, 8).double() for length in (4, 6, 6))
    mask = torch.tensor([[True, True, True, True, False, False]])
    layout = SegmentLayout(torch.tensor([[0, 0, 1, 2]]), torch.tensor([[3, 3, 3, 3, 3, 3]]), mask)
    out = attention.attend(query, key, value, layout)
    expected = (query @ key[:, :, :4].transpose(2, 3) * 8**-0.5).softmax(-1) @ value[:, :, :4]
    torch.testing.assert_close(out, expected)
