"""The module of recall: long documents decoded step by step, pads, half precision, and wrong options."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.segment_recall import SegmentRecallAttention
from scaleformer.model.transformer import Transformer
from scaleformer.ops.segments.layout import SegmentLayout
from tests.helpers import make_batch, make_model


def prepared(model: Transformer, algorithm: str) -> Transformer:
    """With the given algorithm and with distinct saliences, as after training: initially they are all zero."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, SegmentRecallAttention):
            module.algorithm = algorithm
            with torch.no_grad():
                module.salience.copy_(torch.randn(module.salience.shape, generator=generator))
    return model


@torch.no_grad()
def test_both_forms_and_steps_give_the_same_results() -> None:
    """Segment counts and lengths that differ between the sides and between the documents, so that there are pads."""
    batch = make_batch([([5, 3, 1, 4, 6, 2], [4, 2, 5, 1, 3]), ([1, 2], [12]), ([3] * 6, [2] * 7)])
    model = make_model(attention={"name": "segment_recall", "near": 1, "horizon": 4, "kept": 6})
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


class Sorts(TorchDispatchMode):
    """Counts how often integers are sorted, which only making a plan does."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function.overloadpacket is torch.ops.aten.sort and args[0].dtype is torch.long:
            self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_layers_share_one_plan_a_site(checkpointing: bool) -> None:
    """Also when the backward pass recomputes activations. Each batch has its own plan."""
    counts = []
    for layers in (1, 3):
        depth = {"encoder_layers": layers, "decoder_layers": layers, "gradient_checkpointing": checkpointing}
        model = make_model(attention={"name": "segment_recall"}, **depth).train()
        for document in ([3, 4, 5], [2, 2]):
            batch = make_batch([(document, document)])
            with Sorts() as sorts:
                model(batch).sum().backward()
            counts.append(sorts.count)
    assert counts[0] > 0
    assert counts == 4 * counts[:1]


def test_a_plan_of_inference_serves_no_training() -> None:
    """One layout in both modes: autograd cannot save tensors made in inference mode for a backward pass."""
    torch.manual_seed(0)
    attention = SegmentRecallAttention("encoder", 16, 2, near=0, kept=2, algorithm="linear").eval()
    x, segments = torch.randn(1, 40, 16), (torch.arange(40) // 4)[None]
    layout = SegmentLayout(segments, segments)
    with torch.inference_mode():
        expected = attention(x, x, layout)
    out = attention(x, x, layout)
    out.sum().backward()
    torch.testing.assert_close(out, expected)  # not bit for bit: without gradients no weights are kept


def test_pads_of_a_long_row_cost_no_window() -> None:
    """Pads belong to the last segment: a row of few tokens among long ones must not read them as near keys."""
    torch.manual_seed(0)
    attention = SegmentRecallAttention("decoder", 8, 2, algorithm="linear").eval()
    x = torch.randn(2, 40, 8)
    segments = torch.arange(40).div(5, rounding_mode="floor").repeat(2, 1)
    segments[1, 10:] = 2
    mask = torch.arange(40) < torch.tensor([40, 10])[:, None]
    out = attention(x, x, SegmentLayout(segments, segments, mask))
    x, segments = x[1:, :10], segments[1:, :10]
    torch.testing.assert_close(out[1:, :10], attention(x, x, SegmentLayout(segments, segments)))


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_trains_in_half_precision(site: str) -> None:
    """In evaluation mode, since different random choices are not a loss of precision."""
    torch.manual_seed(0)
    attention = SegmentRecallAttention(site, 16, 2, horizon=3).eval()
    x = torch.randn(2, 30, 16)
    segments = (torch.arange(30) // 4).repeat(2, 1)
    layout = SegmentLayout(segments, segments)
    expected = attention(x, x, layout)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x, x, layout)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    out.float().square().sum().backward()
    for parameter_name, parameter in attention.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


def test_noise_is_for_training_alone() -> None:
    torch.manual_seed(0)
    attention = SegmentRecallAttention("encoder", 16, 2, near=0, kept=4)
    x, segments = torch.randn(2, 40, 16), (torch.arange(40) // 4).repeat(2, 1)
    layout = SegmentLayout(segments, segments)
    assert not torch.equal(attention(x, x, layout), attention(x, x, layout))
    attention.eval()
    assert torch.equal(attention(x, x, layout), attention(x, x, layout))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"near": -1}, "near is -1: it must be an int of at least 0"),
        ({"kept": 0}, "kept is 0"),
        ({"horizon": 0}, "horizon is 0"),
        ({"recency": -0.5}, "recency is -0.5"),
        ({"explore": -1}, "explore is -1"),
    ],
    ids=str,
)
def test_wrong_options_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{message}"):
        build_attention({"name": "segment_recall", **options}, "encoder", 8, 2)


@pytest.mark.parametrize("algorithm", ["quadratic", "linear"])
def test_a_gate_that_begins_shut_opens_where_the_segment_before_decides(algorithm: str) -> None:
    torch.manual_seed(0)
    attention = build_attention({"name": "segment_recall", "algorithm": algorithm}, "encoder", 16, 2)
    assert isinstance(attention, SegmentRecallAttention)
    attention.begin_apart()
    shut = build_attention({"name": "segment_recall", "shut": True}, "encoder", 16, 2)
    assert torch.equal(shut.gate, attention.gate)
    x = torch.randn(8, 12, 16)
    segments = (torch.arange(12) // 6).repeat(8, 1)
    layout = SegmentLayout(segments, segments)
    alone = [attention(part, part, SegmentLayout(segments[:, :6], segments[:, :6])) for part in x.split(6, dim=1)]
    torch.testing.assert_close(attention(x, x, layout), torch.cat(alone, dim=1))
    wanted = x[:, :6].mean(1, keepdim=True).expand(-1, 6, -1)  # what only the segment before knows
    optimizer = torch.optim.AdamW(attention.parameters(), lr=0.01, eps=1e-9)
    before = attention.gate.exp().detach().clone()
    for _ in range(20):
        optimizer.zero_grad()
        loss = (attention(x, x, layout)[:, 6:] - wanted).square().mean()
        loss.backward()
        optimizer.step()
    opened = attention.gate.exp() - before
    assert opened.max() > 0.02  # a logarithm of 1e-30 would have moved by 0.2 of 69
