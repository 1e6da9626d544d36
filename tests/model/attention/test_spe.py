"""Stochastic positions against the formula, sum by sum, and against the kernel that they estimate."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.spe import StochasticPositionsAttention
from tests.model.attention.equation import assert_follows, one_segment, weighted_rows


def parameters(attention: StochasticPositionsAttention) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Frequencies, phases and gains (H, d, K), gates (H, d)."""
    gates = attention.raw_gates.sigmoid()
    gains = (gates[..., None] * attention.raw_gains.softmax(-1)).sqrt()
    return attention.raw_frequencies.sigmoid() / 2, attention.phases, gains, gates


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_spe_is_the_mean_by_products_of_realizations(site: str) -> None:
    attention = StochasticPositionsAttention(site, 8, 2, realizations=6, sines=2).double().eval()

    def realized(x: Tensor, asks: bool) -> Tensor:
        f, t, gains, gates = parameters(attention)
        rows = []
        for m in range(x.shape[1]):
            total = x.new_zeros(2, 6)
            for c in range(4):
                wave = (1 - gates[:, c, None]).sqrt() * attention.noise[:, c, 4]  # (H, R)
                for k in range(2):
                    angle = 2 * math.pi * f[:, c, k] * m + (t[:, c, k] if asks else 0)
                    wave = wave + (gains[:, c, k] * angle.cos())[:, None] * attention.noise[:, c, k]
                    wave = wave + (gains[:, c, k] * angle.sin())[:, None] * attention.noise[:, c, 2 + k]
                total = total + x[:, m, c, None] * wave
            rows.append(total / (4 * 6) ** 0.25)
        return torch.nn.functional.elu(torch.stack(rows, dim=1)) + 1  # (H, L, R)

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        return weighted_rows(realized(query, True) @ realized(key, False).transpose(1, 2), value, causal)

    assert_follows(attention, slow)


def test_products_are_a_relative_position_on_average() -> None:
    torch.manual_seed(2)
    attention = StochasticPositionsAttention("encoder", 4, 1, realizations=200_000, sines=3).double().eval()
    attention.noise = torch.randn_like(attention.noise)
    query, key = torch.randn(1, 1, 5, 4, dtype=torch.double), torch.randn(1, 1, 5, 4, dtype=torch.double)
    found = attention.features(query, True, 7) @ attention.features(key, False, 9).transpose(2, 3)
    f, t, gains, gates = parameters(attention)
    for m in range(5):
        for n in range(5):
            angle = 2 * math.pi * f * ((7 + m) - (9 + n)) + t
            kernel = (gains**2 * angle.cos()).sum(-1) + 1 - gates  # (1, d)
            expected = (query[0, 0, m] * kernel[0] * key[0, 0, n]).sum() * math.sqrt(200_000 / 4)
            assert (found[0, 0, m, n] - expected).abs() < 0.05 * math.sqrt(200_000)


def test_noise_is_new_in_training_and_kept_outside_of_it() -> None:
    attention = StochasticPositionsAttention("decoder", 8, 2)
    x, mask = torch.randn(1, 5, 8), torch.ones(1, 5, dtype=torch.bool)
    outputs = [attention(x, x, one_segment(mask)) for _ in range(2)]
    assert not torch.equal(*outputs)
    attention.eval()
    outputs = [attention(x, x, one_segment(mask)) for _ in range(2)]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("option", ["realizations", "sines"])
def test_wrong_options_are_named(option: str) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is 0"):
        build_attention({"name": "spe", option: 0}, "encoder", 16, 2)
