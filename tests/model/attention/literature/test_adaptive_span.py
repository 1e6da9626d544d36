"""Spans by head and by token against loops over all keys, and how many keys are read for them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature import adaptive_span
from scaleformer.model.attention.literature.adaptive_span import AdaptiveSpanAttention
from scaleformer.model.attention.literature.auxiliary_loss import auxiliary_loss
from scaleformer.ops.softmax import relative
from scaleformer.ops.softmax.relative import relative_softmax_attention
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_follows_by_segment, assert_steps_follow, one_segment

SELF = ("encoder", "decoder")


def spread(attention: AdaptiveSpanAttention, spans: list[float]) -> AdaptiveSpanAttention:
    """Sets the shares of the spans, or draws those of each token."""
    with torch.no_grad():
        if attention.dynamic:
            attention.span_weight.normal_()
        else:
            attention.span.copy_(torch.tensor(spans))
    return attention


@pytest.mark.parametrize("site", SELF)
@pytest.mark.parametrize("dynamic", [False, True], ids=["by head", "by token"])
@pytest.mark.parametrize("least", [2, 64], ids=["windows", "whole"])
def test_it_fades_out_beyond_the_span(site: str, dynamic: bool, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive_span, "LEAST_REACH", least)
    options: dict[str, Any] = {"max_span": 5, "ramp": 2, "penalty": 0.0, "horizon": 2, "dynamic": dynamic}
    attention = spread(AdaptiveSpanAttention(site, 12, 3, **options), [0.3, 0.05, 0.9])

    def slow(x: Tensor, memory: Tensor, *_: Tensor) -> Tensor:
        query, key, value = (f(x).view(-1, 3, 4) for f in (attention.query, attention.key, attention.value))
        out = []
        for i in range(len(x)):
            if dynamic:
                span = 5 * torch.sigmoid(attention.span_weight @ x[i] + attention.span_bias)  # (H,)
            else:
                span = 5 * attention.span
            weights = []
            for j in range(len(x) if site == "encoder" else i + 1):
                seen = ((2 + span - abs(j - i)) / 2).clamp(0, 1)  # (H,)
                embedding = attention.relative_embedding[:, max(-2, min(2, j - i)) + 2]  # (H, d)
                weights.append(seen * ((query[i] * (key[j] + embedding)).sum(-1) / math.sqrt(4)).exp())
            shares = torch.stack(weights) / sum(weights)  # (S, H)
            out.append((shares[..., None] * value[: len(weights)]).sum(0).flatten())
        return attention.output(torch.stack(out))

    assert_follows_by_segment(attention, slow, lengths=(13, 1, 30))


@pytest.mark.parametrize("dynamic", [False, True], ids=["by head", "by token"])
def test_steps_follow_and_keep_what_some_head_can_reach(dynamic: bool) -> None:
    torch.manual_seed(1)
    attention = AdaptiveSpanAttention("decoder", 12, 3, max_span=8, ramp=3, dynamic=dynamic).double()
    attention = spread(attention, [0.1, 1.0, 0.0])
    state = assert_steps_follow(attention, 150)
    assert state.inner.key.shape[2] == attention.room == 64


@pytest.mark.parametrize("site", SELF)
@pytest.mark.parametrize("dynamic", [False, True], ids=["by head", "by token"])
def test_the_keys_that_are_read_fall_with_the_spans(site: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(q: Tensor, k: Tensor, *rest: Any, **more: Any) -> Tensor:
        nonlocal read
        read += q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        return relative_softmax_attention(q, k, *rest, **more)

    monkeypatch.setattr(relative, "relative_softmax_attention", counted)
    x, ones = torch.randn(1, 512, 8), torch.ones(1, 512)
    wide = 2 if site == "decoder" else 3

    def keys(shares: list[float]) -> float:
        """For each query and head."""
        nonlocal read
        read, shares = 0, [min(max(share, 1e-6), 1 - 1e-6) for share in shares]
        attention = AdaptiveSpanAttention(site, 8, 2, max_span=512, ramp=16, dynamic=dynamic)
        with torch.no_grad():
            given = torch.tensor(shares)
            (attention.span_bias if dynamic else attention.span).copy_(given.logit() if dynamic else given)
            attention(x, x, one_segment(ones.bool()))
        return read / (512 * 2)

    assert keys([1.0, 1.0]) == 512
    assert keys([0.15, 0.15]) == wide * 128
    assert keys([0.05, 0.05]) == wide * 64
    assert keys([0.0, 0.0]) == wide * 32  # the ramp
    assert keys([0.05, 1.0]) == (wide * 64 + 512) / 2  # a head with a wide span costs the others nothing


def test_a_step_reads_the_keys_within_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(q: Tensor, k: Tensor, *rest: Any, **more: Any) -> Tensor:
        read.append(k.shape[2])
        return relative_softmax_attention(q, k, *rest, **more)

    monkeypatch.setattr(adaptive_span, "relative_softmax_attention", counted)
    attention = spread(AdaptiveSpanAttention("decoder", 8, 2, max_span=100, ramp=8), [0.05, 0.2])
    x, ones = torch.randn(1, 1, 8), torch.ones(1, 1)
    state = attention.init_state(x, ones.bool(), ones.long(), 1)
    with torch.no_grad():
        for position in range(300):
            _, state = attention.step(x[:, 0], position, ones[:, 0].long(), state)
    assert read[:2] == [1, 1]
    assert read[-2:] == [16, 32]


def test_the_mean_span_of_the_heads_costs_its_penalty() -> None:
    x, mask = torch.randn(1, 9, 16), torch.ones(1, 9, dtype=torch.bool)
    gradients = []
    for penalty in (0.0, 0.5):
        torch.manual_seed(1)
        attention = AdaptiveSpanAttention("encoder", 16, 2, max_span=4, ramp=2, initial=0.5, penalty=penalty)
        out, cost = attention(x, x, one_segment(mask)), attention.auxiliary_loss()
        assert cost is not None
        (out.sum() + cost).backward()
        gradients.append(attention.span.grad)
    torch.testing.assert_close(gradients[1] - gradients[0], torch.full((2,), 0.5 * 4 / 2))
    assert cost.item() == pytest.approx(0.5 * (2 + 2) / 2)


def test_the_mean_span_of_the_tokens_costs_its_penalty_once() -> None:
    torch.manual_seed(1)
    attention = AdaptiveSpanAttention("encoder", 16, 2, max_span=40, ramp=2, initial=0.5, penalty=0.5, dynamic=True)
    spread(attention, [])
    assert attention.auxiliary_loss() is None
    x, mask = torch.randn(2, 9, 16), torch.arange(9) < torch.tensor([[9], [4]])
    attention(x, x, one_segment(mask))
    cost = attention.auxiliary_loss()
    spans = [40 * torch.sigmoid(attention.span_weight @ row + attention.span_bias).mean() for row in x[mask]]
    torch.testing.assert_close(cost, 0.5 * sum(spans) / 13)
    assert attention.auxiliary_loss() is None
    found, wanted = (torch.autograd.grad(c, attention.span_weight)[0] for c in (cost, 0.5 * sum(spans) / 13))
    torch.testing.assert_close(found, wanted)
    attention.eval()(x, x, one_segment(mask))
    assert attention.auxiliary_loss() is None


def test_checkpointed_layers_have_the_same_penalty() -> None:
    gradients = []
    for kept in (False, True):
        choice = {"name": "adaptive_span", "max_span": 8, "ramp": 3, "dynamic": True, "penalty": 0.1}
        model = make_model(attention={**choice, "fallback": "softmax"}, gradient_checkpointing=kept).train()
        batch = make_batch([([5, 3], [4, 4]), ([1], [2])])
        loss = model.logits(model(batch)).square().mean() + auxiliary_loss(model)
        loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if "span" in name})
        assert len(gradients[-1]) == 8
    for name, gradient in gradients[0].items():
        assert gradient.abs().sum() > 0
        torch.testing.assert_close(gradients[1][name], gradient)


@pytest.mark.parametrize(("option", "value"), [("ramp", 0), ("initial", 2), ("max_span", 0)])
def test_wrong_options_are_named(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{option} is {value}"):
        build_attention({"name": "adaptive_span", option: value}, "encoder", 16, 2)
