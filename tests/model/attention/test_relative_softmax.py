"""Softmax with clipped relative positions, linear biases, rotary and learned positions, against their equations."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.alibi import AlibiAttention
from scaleformer.model.attention.rotary import RotaryAttention
from scaleformer.model.attention.shaw import ShawAttention
from scaleformer.model.attention.softmax import SoftmaxAttention
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_follows, softmax_rows

SELF = ("encoder", "decoder")


@pytest.mark.parametrize("site", SELF)
@pytest.mark.parametrize("horizon", [1, 3, 20])
def test_shaw_is_equation_4(site: str, horizon: int) -> None:
    attention = ShawAttention(site, 16, 2, horizon)

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        scores = query.new_zeros(2, query.shape[1], key.shape[1])
        for i in range(query.shape[1]):
            for j in range(key.shape[1]):
                embedding = attention.relative_embedding[:, max(-horizon, min(horizon, j - i)) + horizon]  # (H, d)
                scores[:, i, j] = (query[:, i] * (key[:, j] + embedding)).sum(-1) / math.sqrt(8)
        return softmax_rows(scores, value, causal)

    assert_follows(attention, slow)


@pytest.mark.parametrize("site", SELF)
def test_alibi_is_softmax_with_a_slope_for_each_head(site: str) -> None:
    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        distance = (torch.arange(key.shape[1]) - torch.arange(query.shape[1])[:, None]).abs()
        bias = torch.stack([distance * slope for slope in (1 / 4, 1 / 16, 1 / 64, 1 / 256)])  # (H, L, S)
        return softmax_rows(query @ key.transpose(1, 2) / math.sqrt(4) - bias, value, causal)

    assert_follows(AlibiAttention(site, 16, 4), slow)


@pytest.mark.parametrize("site", SELF)
def test_rotary_turns_pairs_as_complex_numbers(site: str) -> None:
    def turned(x: Tensor) -> Tensor:
        pairs = torch.complex(x[..., 0::2], x[..., 1::2])  # (H, L, d/2)
        factors = [[cmath.exp(1j * m * 100 ** (-2 * c / 8)) for c in range(4)] for m in range(x.shape[1])]
        return pairs * torch.tensor(factors, dtype=torch.cdouble)

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        scores = torch.einsum("hic,hjc->hij", turned(query), turned(key).conj()).real  # (H, L, S)
        return softmax_rows(scores / math.sqrt(8), value, causal)

    assert_follows(RotaryAttention(site, 16, 2, base=100.0), slow)


@pytest.mark.parametrize("site", [*SELF, "cross"])
def test_softmax_is_equation_1(site: str) -> None:
    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        return softmax_rows(query @ key.transpose(1, 2) / math.sqrt(8), value, causal)

    assert_follows(SoftmaxAttention(site, 16, 2), slow)


def test_learned_positions_are_added_and_refuse_longer_texts() -> None:
    batch = make_batch([([5, 3], [4, 4])])  # 11 source, 11 target positions
    model = make_model(attention={"name": "softmax", "positions": "learned", "max_positions": 11})
    blind = make_model(attention={"name": "softmax", "positions": "none"})
    missing = blind.load_state_dict(model.state_dict(), strict=False)
    assert not missing.missing_keys
    assert missing.unexpected_keys == ["source_positions.embedding", "target_positions.embedding"]
    logits = model.logits(model(batch))
    assert (logits - blind.logits(blind(batch))).abs().amax() > 1e-3
    for positions in (model.source_positions, model.target_positions):
        torch.nn.init.zeros_(positions.embedding)
    torch.testing.assert_close(model.logits(model(batch)), blind.logits(blind(batch)))
    with pytest.raises(ValueError, match="a text of 12 tokens is longer than the 11 learned positions"):
        model(make_batch([([5, 4], [4, 4])]))


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        pytest.param({}, (9, 9), id="learned"),
        pytest.param({"encoder": {"name": "linformer", "max_length": 7}}, (7, 9), id="a linformer that reads less"),
        pytest.param({"cross": {"name": "linformer", "max_length": 8}}, (8, 9), id="of the memory"),
        pytest.param({"encoder": {"name": "softmax"}}, (math.inf, 9), id="decoder alone"),
        pytest.param({"encoder": {"name": "softmax"}, "decoder": {"name": "shaw"}}, (math.inf, 9), id="by the cross"),
        pytest.param({"encoder": {"name": "shaw"}, "decoder": {"name": "alibi"}, "cross": {"name": "softmax"}},
                     (math.inf, math.inf), id="none"),
    ],
)  # fmt: skip
def test_the_longest_texts(sites: dict[str, Any], expected: tuple[float, float]) -> None:
    model = make_model(attention={"name": "softmax", "positions": "learned", "max_positions": 9}, sites=sites)
    assert (model.most_source_tokens, model.most_target_tokens) == expected


@pytest.mark.parametrize(
    ("choice", "site", "message"),
    [
        ({"name": "rotary"}, "cross", "'rotary' cannot serve the cross site: choose one of scaleformer"),
        ({"name": "rotary", "base": 1}, "encoder", "base is 1"),
        ({"name": "shaw", "horizon": 0}, "encoder", "horizon is 0"),
        ({"name": "softmax", "positions": "absolute"}, "encoder", "it must be one of sinusoidal, learned, none"),
        ({"name": "softmax", "max_positions": 0}, "encoder", "max_positions is 0"),
    ],
    ids=["site", "base", "horizon", "positions", "max_positions"],
)
def test_wrong_options_are_named(choice: dict, site: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention(choice, site, 16, 2)


def test_rotary_needs_an_even_head_width() -> None:
    with pytest.raises(ValueError, match="cannot use a head width of 5: set"):
        RotaryAttention("encoder", 10, 2)


def test_the_fallback_serves_a_site_unless_the_choice_was_made_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    choice = {"name": "shaw", "fallback": {"name": "softmax", "positions": "none"}}
    assert type(build_attention(choice, "cross", 16, 2)) is SoftmaxAttention
    build_attention(choice, "cross", 16, 2)
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if "'shaw' cannot serve the cross site: using 'softmax' there" in line]) <= 1
    assert type(build_attention({"name": "shaw", "fallback": "softmax"}, "cross", 16, 2)) is SoftmaxAttention
    with pytest.raises(ValueError, match="cannot serve the cross site"):
        build_attention(choice, "cross", 16, 2, strict=True)
