"""The hybrid module and that with recall: long documents decoded step by step, half precision, and wrong options."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scaleformer.model.attention.segment_hybrid import SegmentHybridAttention
from scaleformer.model.attention.segment_recall import SegmentRecallAttention
from scaleformer.model.transformer import Transformer
from tests.helpers import make_batch, make_model

MODULES: dict[str, Any] = {"segment_hybrid": SegmentHybridAttention, "segment_recall": SegmentRecallAttention}
each_module = pytest.mark.parametrize("name", MODULES)


def prepared(model: Transformer, algorithm: str) -> Transformer:
    """With an algorithm, and with saliences that differ, as after some training: they begin as zeros."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, tuple(MODULES.values())):
            module.algorithm = algorithm
        if isinstance(module, SegmentRecallAttention):
            with torch.no_grad():
                module.salience.copy_(torch.randn(module.salience.shape, generator=generator))
    return model


@torch.no_grad()
@pytest.mark.parametrize(
    "attention",
    [
        {"name": "segment_hybrid", "near": 1, "horizon": 4, "reach": 3},
        {"name": "segment_recall", "near": 1, "horizon": 4, "kept": 6},
    ],
    ids=lambda choice: choice["name"],
)
def test_a_document_is_the_same_by_either_form_and_step_by_step(attention: dict[str, Any]) -> None:
    """Segment counts and lengths that differ between the sides and between the documents, so that there are pads."""
    batch = make_batch([([5, 3, 1, 4, 6, 2], [4, 2, 5, 1, 3]), ([1, 2], [12]), ([3] * 6, [2] * 7)])
    model = make_model(attention=attention)
    linear = model.logits(prepared(model, "linear")(batch))
    quadratic = model.logits(prepared(model, "quadratic")(batch))
    real = batch.target_mask
    torch.testing.assert_close(linear[real], quadratic[real], rtol=0, atol=1e-10)
    state = model.init_state(model.encode(batch.source, batch.source_mask, batch.source_segments), 1)
    for position in range(batch.target_input.shape[1]):
        tokens, segments = batch.target_input[:, position], batch.target_segments[:, position]
        logits, state = model.step(tokens, segments, state)
        here = real[:, position]
        torch.testing.assert_close(logits[here].double(), quadratic[here, position], rtol=1e-4, atol=1e-4)


@each_module
def test_what_stands_in_the_pads_of_a_long_row_costs_no_window(name: str) -> None:
    """Pads belong to the last segment: a row of few tokens among long ones must not read them as near keys."""
    torch.manual_seed(0)
    attention = MODULES[name]("decoder", 8, 2, algorithm="linear").eval()
    x = torch.randn(2, 40, 8)
    segments = torch.arange(40).div(5, rounding_mode="floor").repeat(2, 1)
    segments[1, 10:] = 2
    mask = torch.arange(40) < torch.tensor([40, 10])[:, None]
    out = attention(x, x, mask, segments, segments)
    alone = attention(x[1:, :10], x[1:, :10], mask[1:, :10], segments[1:, :10], segments[1:, :10])
    torch.testing.assert_close(out[1:, :10], alone)


@each_module
@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_trains_in_half_precision(name: str, site: str) -> None:
    """In evaluation mode: chance that differs is no loss of precision."""
    torch.manual_seed(0)
    attention = MODULES[name](site, 16, 2, horizon=3).eval()
    x = torch.randn(2, 30, 16)
    segments = (torch.arange(30) // 4).repeat(2, 1)
    arguments = (x, x, torch.ones(2, 30, dtype=torch.bool), segments, segments)
    expected = attention(*arguments)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(*arguments)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    out.float().square().sum().backward()
    for parameter_name, parameter in attention.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


def test_chance_is_for_training_alone() -> None:
    torch.manual_seed(0)
    attention = SegmentRecallAttention("encoder", 16, 2, near=0, kept=4)
    x = torch.randn(2, 40, 16)
    segments = (torch.arange(40) // 4).repeat(2, 1)
    arguments = (x, x, torch.ones(2, 40, dtype=torch.bool), segments, segments)
    assert not torch.equal(attention(*arguments), attention(*arguments))
    attention.eval()
    assert torch.equal(attention(*arguments), attention(*arguments))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("segment_hybrid", {"near": 4}, "near is 4: it must be at least 0 and below reach, 4 segments"),
        ("segment_hybrid", {"reach": 0}, "reach is 0"),
        ("segment_hybrid", {"horizon": 0}, "horizon is 0"),
        ("segment_recall", {"near": -1}, "near is -1: it must be at least 0"),
        ("segment_recall", {"kept": 0}, "kept is 0"),
        ("segment_recall", {"horizon": 0}, "horizon is 0"),
        ("segment_recall", {"recency": -0.5}, "recency is -0.5"),
        ("segment_recall", {"explore": -1}, "explore is -1"),
    ],
    ids=str,
)
def test_names_the_option_that_is_wrong(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{message}"):
        MODULES[name]("encoder", 8, 2, **options)
