"""A training step gives a GPU its work without waiting for it: on a CPU by the operations that would wait, on a GPU by
torch's own check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scaleformer.model.transformer import Transformer
from scaleformer.ops.recall import attention as recall
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.training.callbacks import RandomState
from scaleformer.training.graphs import StepGraphs, masked_loss
from scaleformer.training.module import TranslationModule
from scaleformer.training.progress import TrainingProgress
from scripts.bench_training.models import Sizes, make_batch, make_model
from tests.trainings import Batches, make_module, make_trainer

SIZES = Sizes(layers=2, width=32, feedforward=64, heads=2, vocabulary=60)
BY_NUMBERS = {
    "masked_select",
    "nonzero",
    "_unique2",
    "unique_consecutive",
    "unique_dim",
    "bincount",
}  # sizes of results
READ = {"_local_scalar_dense", "equal", "is_nonzero"}


class Waits(TorchDispatchMode):
    """Counts the operations that would wait for a GPU: numbers that Python reads, and sizes that depend on numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        kwargs = kwargs or {}
        if name in READ | BY_NUMBERS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
            self.found[name] += 1
        if name.strip("_").startswith("index") and isinstance(args[1], (list, tuple)):
            self.found[f"{name} by a mask"] += any(isinstance(x, Tensor) and x.dtype == torch.bool for x in args[1])
        return func(*args, **kwargs)


@contextmanager
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    mode = Waits()
    with mode, monkeypatch.context() as patched:
        for name in ("tolist", "cpu", "numpy"):  # which the mode does not see on a CPU
            usual = getattr(Tensor, name)

            def noted(*arguments: Any, name: str = name, usual: Any = usual, **options: Any) -> Any:
                mode.found[name] += 1
                return usual(*arguments, **options)

            patched.setattr(Tensor, name, noted)
        yield mode.found


def test_what_would_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x, mask = torch.arange(3.0), torch.tensor([True, False, True])
    with waits(monkeypatch) as found:
        x[mask]
        x[mask] = 0.0
        float(x[0])
        x.tolist()
        mask.nonzero()
        torch.repeat_interleave(mask.long())
        torch.equal(x, x)
        x.index_select(0, torch.tensor([1]))  # these three do not
        torch.repeat_interleave(mask.long(), output_size=2)
        x[torch.tensor([1])]
    assert +found == {
        "index by a mask": 1, "index_put_ by a mask": 1, "_local_scalar_dense": 1, "tolist": 1, "nonzero": 1,
        "repeat_interleave": 1, "equal": 1,
    }  # fmt: skip


class Nothing:
    """A kernel that computes nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **options: None


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model does on a GPU, on tensors of a CPU."""
    fused = pytest.importorskip("scaleformer.ops.recall.fused", reason="Triton is missing")
    for name in ("forward_kernel", "backward_kernel", "choose_kernel", "top_kernel"):
        monkeypatch.setattr(fused, name, Nothing())
    monkeypatch.setattr(recall, "can_fuse", lambda device, products: True)
    monkeypatch.setattr(recall, "check_recall", lambda *arguments: None)
    monkeypatch.setattr(SegmentLayout, "_real", lambda self: self.key_mask)
    monkeypatch.setattr("scaleformer.model.transformer.lower_layers", lambda layers, x: [])
    monkeypatch.setattr(
        TranslationModule, "_loss", lambda self, batch, smoothing: masked_loss(self.model, batch, smoothing)
    )


def backward(model: Transformer, seed: int, device: str = "cpu") -> None:
    """The gradients of a padded batch, in bf16 as in training."""
    batch = make_batch(3, 90, 10, SIZES.vocabulary, torch.Generator().manual_seed(seed)).to(device)
    batch.source_mask[1:, 70:] = batch.target_mask[:2, 50:] = False
    with torch.autocast(device, torch.bfloat16):
        loss, tokens = masked_loss(model, batch, 0.1)
    (loss * tokens).backward()


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("attention", ["segment_recall", "scaleformer", "softmax"])
def test_both_passes_wait_for_nothing(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(attention, SIZES).train()
    with waits(monkeypatch) as found:
        backward(model, 0)
    assert not +found
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_whole_step_reads_from_the_gpu_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss, norm and requests together, after the backward pass; Lightning and our callbacks read nothing else."""

    def reads(steps: int) -> Counter[str]:
        module = make_module(attention={"name": "softmax"})  # whose numbers are finite without its kernels
        trainer = make_trainer(tmp_path, [TrainingProgress(), RandomState(0)], max_steps=steps, log_every_n_steps=100)
        with waits(monkeypatch) as found:
            trainer.fit(module, Batches(steps))
        assert module.guard.skipped == 0
        return found

    assert reads(7) - reads(4) == {"tolist": 3}  # the rest is of the beginning and the end


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: torch checks there whether a call waits")
@pytest.mark.parametrize("graphs", [False, True], ids=["plain", "graphs"])
@pytest.mark.parametrize("attention", ["segment_recall", "scaleformer", "softmax"])
def test_nothing_waits_for_the_gpu(attention: str, graphs: bool) -> None:
    model = make_model(attention, SIZES).cuda().train()
    replayed = StepGraphs(model, 0.1, torch.bfloat16) if graphs else None

    def step(seed: int) -> None:
        if replayed is None:
            backward(model, seed, "cuda")
        else:
            batch = make_batch(3, 90, 10, SIZES.vocabulary, torch.Generator().manual_seed(seed))
            replayed.run(batch.to("cuda"))
            replayed.add_gradients()

    step(0)  # compiles, and captures the shape
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
