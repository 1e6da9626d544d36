"""The projected keys against the equation, and the limit of the projections."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.linformer import LinformerAttention
from tests.model.attention.equation import assert_follows, one_segment, softmax_rows


@pytest.mark.parametrize("site", ["encoder", "cross"])
def test_linformer_is_equation_7(site: str) -> None:
    attention = LinformerAttention(site, 16, 2, rank=3, max_length=16)

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        keys = torch.einsum("rj,hjd->hrd", attention.key_projection[:, : key.shape[1]], key)
        values = torch.einsum("rj,hjd->hrd", attention.value_projection[:, : key.shape[1]], value)
        return softmax_rows(query @ keys.transpose(1, 2) / math.sqrt(8), values, causal)

    assert_follows(attention, slow)


def test_longer_texts_are_refused() -> None:
    attention = LinformerAttention("encoder", 16, 2, max_length=5)
    x, mask = torch.zeros(1, 6, 16), torch.ones(1, 6, dtype=torch.bool)
    with pytest.raises(ValueError, match="at most 5 tokens, not 6: shorten the text, or train with a larger"):
        attention(x, x, one_segment(mask))


@pytest.mark.parametrize(
    ("choice", "site", "message"),
    [
        ({"name": "linformer"}, "decoder", "cannot serve the decoder site"),
        ({"name": "linformer", "rank": 0}, "encoder", "rank is 0"),
        ({"name": "linformer", "max_length": 0}, "encoder", "max_length is 0"),
    ],
    ids=["decoder", "rank", "max_length"],
)
def test_wrong_options_are_named(choice: dict, site: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention(choice, site, 16, 2)
