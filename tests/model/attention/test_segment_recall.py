"""The module with recall: long documents decoded step by step, half precision, and options that are wrong."""

from __future__ import annotations

import pytest
import torch

from scaleformer.model.attention.segment_recall import SegmentRecallAttention
from scaleformer.model.transformer import Transformer
from tests.helpers import make_batch, make_model


def forget_unevenly(model: Transformer) -> Transformer:
    """Saliences that differ, as after some training: they begin as zeros."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, SegmentRecallAttention):
            with torch.no_grad():
                module.salience.copy_(torch.randn(module.salience.shape, generator=generator))
    return model


def with_algorithm(model: Transformer, algorithm: str) -> Transformer:
    for module in model.modules():
        if isinstance(module, SegmentRecallAttention):
            module.algorithm = algorithm
    return model


@torch.no_grad()
def test_a_document_is_the_same_by_either_form_and_step_by_step() -> None:
    """Segment counts and lengths that differ between the sides and between the documents, so that there are pads."""
    batch = make_batch([([5, 3, 1, 4, 6, 2], [4, 2, 5, 1, 3]), ([1, 2], [12]), ([3] * 6, [2] * 7)])
    model = forget_unevenly(make_model(attention={"name": "segment_recall", "near": 1, "horizon": 4, "kept": 6}))
    linear = model.logits(with_algorithm(model, "linear")(batch))
    quadratic = model.logits(with_algorithm(model, "quadratic")(batch))
    real = batch.target_mask
    torch.testing.assert_close(linear[real], quadratic[real], rtol=0, atol=1e-10)
    state = model.init_state(model.encode(batch.source, batch.source_mask, batch.source_segments), 1)
    for position in range(batch.target_input.shape[1]):
        tokens, segments = batch.target_input[:, position], batch.target_segments[:, position]
        logits, state = model.step(tokens, segments, state)
        here = real[:, position]
        torch.testing.assert_close(logits[here].double(), quadratic[here, position], rtol=1e-4, atol=1e-4)


def test_what_stands_in_the_pads_of_a_long_row_costs_no_window() -> None:
    """Pads belong to the last segment: a row of few tokens among long ones must not read them as near keys."""
    torch.manual_seed(0)
    attention = SegmentRecallAttention("decoder", 8, 2, algorithm="linear")
    x = torch.randn(2, 40, 8)
    segments = torch.arange(40).div(5, rounding_mode="floor").repeat(2, 1)
    segments[1, 10:] = 2
    mask = torch.arange(40) < torch.tensor([40, 10])[:, None]
    out = attention(x, x, mask, segments, segments)
    alone = attention(x[1:, :10], x[1:, :10], mask[1:, :10], segments[1:, :10], segments[1:, :10])
    torch.testing.assert_close(out[1:, :10], alone)


def test_chance_is_for_training_alone() -> None:
    torch.manual_seed(0)
    attention = SegmentRecallAttention("encoder", 16, 2, near=0, kept=4)
    x = torch.randn(2, 40, 16)
    segments = (torch.arange(40) // 4).repeat(2, 1)
    arguments = (x, x, torch.ones(2, 40, dtype=torch.bool), segments, segments)
    assert not torch.equal(attention(*arguments), attention(*arguments))
    attention.eval()
    assert torch.equal(attention(*arguments), attention(*arguments))


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_trains_in_half_precision(site: str) -> None:
    torch.manual_seed(0)
    attention = SegmentRecallAttention(site, 16, 2, horizon=3)
    x = torch.randn(2, 30, 16)
    segments = (torch.arange(30) // 4).repeat(2, 1)
    arguments = (x, x, torch.ones(2, 30, dtype=torch.bool), segments, segments)
    attention.explore = 0  # chance that differs is no loss of precision
    expected = attention(*arguments)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(*arguments)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    out.float().square().sum().backward()
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"near": -1}, "model.attention.near is -1: it must be at least 0"),
        ({"kept": 0}, "model.attention.kept is 0"),
        ({"horizon": 0}, "model.attention.horizon is 0"),
        ({"recency": -0.5}, "model.attention.recency is -0.5"),
    ],
    ids=["near", "kept", "horizon", "recency"],
)
def test_names_the_option_that_is_wrong(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentRecallAttention("encoder", 8, 2, **options)  # type: ignore[arg-type]
