"""Training steps as graphs of CUDA: on a CPU what surrounds the graphs, on a GPU the gradients themselves."""

from __future__ import annotations

import pytest
import torch

from scaleformer.batch import Batch
from scaleformer.model.transformer import Transformer
from scaleformer.training.graphs import StepGraphs, fill, masked_loss, padded, reason_against, rounded
from scripts.bench_training.models import Sizes, make_batch, make_model, our_loss

SIZES = Sizes(layers=1, width=32, feedforward=64, heads=2, vocabulary=60)
CPU = torch.device("cpu")


def test_pads_change_neither_loss_nor_gradients() -> None:
    torch.manual_seed(0)
    model = make_model("segment_recall", SIZES, dropout=0.0).eval()
    batch = make_batch(3, 40, 10, SIZES.vocabulary, torch.Generator().manual_seed(0))
    place = padded(make_batch(4, 60, 10, SIZES.vocabulary, torch.Generator().manual_seed(1)), (4, 64, 64))
    fill(place, batch)  # over a larger batch, of which nothing may remain visible
    expected = our_loss(model, batch)
    loss, tokens = masked_loss(model, place)
    assert tokens == 120
    torch.testing.assert_close(loss, expected)
    parameters = [p for p in model.parameters() if p.requires_grad]
    options = {"allow_unused": True, "materialize_grads": True}
    wanted = torch.autograd.grad(expected, parameters, **options)  # type: ignore[arg-type]
    for found, one in zip(torch.autograd.grad(loss, parameters, **options), wanted, strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(found, one, rtol=1e-4, atol=1e-6)


def test_few_shapes_for_many_lengths() -> None:
    assert [rounded(n) for n in (1, 7, 17, 33, 100)] == [1, 7, 18, 36, 104]
    assert [rounded(n, 64) for n in (1, 64, 65, 500, 1100, 5000)] == [64, 64, 128, 512, 1152, 5120]
    assert all(n <= rounded(n) <= n * 9 / 8 for n in range(8, 5000))


def test_the_reason_against_graphs_is_named() -> None:
    model = make_model("segment_recall", SIZES)
    assert reason_against(model, CPU, "32-true", 1) == "the device is cpu"
    assert reason_against(model, CPU, "32-true", 2) == "2 processes exchange gradients"
    assert reason_against(model, CPU, "16-mixed", 1) == "trainer.precision=16-mixed"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: only CUDA has graphs")
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("attention", ["softmax", "segment_recall"])
def test_gradients_of_graphs_equal_those_without(attention: str, dtype: torch.dtype | None) -> None:
    torch.manual_seed(0)
    model = make_model(attention, SIZES, dropout=0.0).cuda().train()
    graphs = StepGraphs(model, 0.1, dtype)
    for seed, documents in enumerate((4, 3, 4)):
        batch = make_batch(documents, 60, 10, SIZES.vocabulary, torch.Generator().manual_seed(seed)).to("cuda")
        model.zero_grad()
        assert graphs.run(batch) is not None
        graphs.add_gradients()
        found = [p.grad for p in graphs.parameters]
        model.zero_grad()
        accumulate(model, batch, dtype)
        for one, parameter in zip(found, graphs.parameters, strict=True):
            torch.testing.assert_close(one, parameter.grad, rtol=2e-2, atol=2e-2)


def accumulate(model: Transformer, batch: Batch, dtype: torch.dtype | None) -> None:
    """Gradients without a graph. Nothing of the pass may outlive it: a later capture would wait for its stream."""
    with torch.autocast("cuda", dtype, enabled=dtype is not None):
        loss, tokens = masked_loss(model, batch, 0.1)
    (loss * tokens).backward()
