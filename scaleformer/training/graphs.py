"""Training steps as captured graphs of CUDA: forward and backward pass start with one call in place of thousands.

A GPU computes a step of a small model in less time than a CPU needs to launch its operators. So batches are padded to a
few shapes, the operators of each shape are captured once, and then replayed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from scaleformer.batch import Batch
from scaleformer.model.attention.literature.auxiliary_loss import auxiliary_loss
from scaleformer.model.transformer import Transformer
from scaleformer.ops.loss.cross_entropy import linear_cross_entropy
from scaleformer.training.carried_memory import carrying
from scaleformer.training.emphasis import Emphasis

MOST_SHAPES = 48  # with graphs; batches of other shapes are computed without


class Captured(NamedTuple):
    """The graph of a shape, the batch that it reads, and the mean loss and the number of tokens that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor
    tokens: Tensor


class StepGraphs:
    """Losses and gradients of batches on one GPU, by graphs.

    model            must compute without waiting for the GPU: else the capture raises RuntimeError
    label_smoothing  of the loss
    dtype            of autocast, or None
    unit             gradients are those of the sum of all tokens' losses, divided by this
    """

    def __init__(
        self, model: Transformer, label_smoothing: float = 0.0, dtype: torch.dtype | None = None, unit: float = 1.0
    ) -> None:
        self.model, self.label_smoothing, self.dtype, self.unit = model, label_smoothing, dtype, unit
        self.parameters: list[nn.Parameter] = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.gradients = torch.zeros(sum(p.numel() for p in self.parameters), device=self.device)
        self.pool = torch.cuda.graph_pool_handle()
        self.shapes: dict[tuple[int, int, int], Captured] = {}
        self.without = 0  # batches computed without a graph, for want of room

    def run(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """The mean loss and the number of target tokens, valid until the next run, as the gradients are. None for a
        shape without a graph when there are `MOST_SHAPES` already."""
        shape = rounded(len(batch)), rounded(batch.source.shape[1], 64), rounded(batch.target_input.shape[1], 64)
        if shape not in self.shapes:
            if len(self.shapes) == MOST_SHAPES:
                self.without += 1
                return None
            self.shapes[shape] = self._capture(padded(batch, shape))
        captured = self.shapes[shape]
        fill(captured.batch, batch)
        captured.graph.replay()
        return captured.loss, captured.tokens

    def add_gradients(self, share: float = 1.0) -> None:
        """Add a share of the gradients of the last run to those of the parameters."""
        gradients = self.views(self.gradients * share)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)

    def summary(self) -> str:
        rest = f"; {self.without:,} batches of other shapes without" if self.without else ""
        return f"graphs of training steps: {len(self.shapes)} shapes{rest}"

    def views(self, gradients: Tensor) -> list[Tensor]:
        """The parts of a flat tensor, in the shapes of the parameters."""
        parts = gradients.split([p.numel() for p in self.parameters])
        return [part.view_as(p) for part, p in zip(parts, self.parameters, strict=True)]

    def _capture(self, batch: Batch) -> Captured:
        """Without a trace in the random numbers, so that a resumed run draws the same."""
        graph = torch.cuda.CUDAGraph()
        with torch.random.fork_rng(devices=[self.device]):
            aside = torch.cuda.Stream(self.device)
            aside.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(aside):
                self._compute(batch)  # compiles what is compiled at the first call
            torch.cuda.current_stream(self.device).wait_stream(aside)
            with torch.cuda.graph(graph, pool=self.pool):
                loss, tokens = self._compute(batch)
        return Captured(graph, batch, loss, tokens)

    def _compute(self, batch: Batch) -> tuple[Tensor, Tensor]:
        # A graph must not share the weights that autocast has converted for others.
        with torch.autocast("cuda", self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            loss, tokens = masked_loss(self.model, batch, self.label_smoothing)
            total = (loss + auxiliary_loss(self.model)) * (tokens / self.unit)
        found = torch.autograd.grad(total, self.parameters, materialize_grads=True, allow_unused=True)
        torch._foreach_copy_(self.views(self.gradients), found)
        return loss.detach(), tokens


def reason_against(model: Transformer, device: torch.device, precision: str, processes: int) -> str:
    """Why the training of a model cannot use graphs; empty if it may."""
    if processes > 1:
        return f"{processes} processes exchange gradients"
    if carrying(model):
        return "its attention carries memory from batch to batch"
    if model.config.gradient_checkpointing:
        return "model.gradient_checkpointing=true"
    if precision not in ("32-true", "bf16-mixed"):
        return f"trainer.precision={precision}"
    return "" if device.type == "cuda" else f"the device is {device.type}"


def masked_loss(
    model: Transformer,
    batch: Batch,
    label_smoothing: float = 0.0,
    emphasis: Emphasis | None = None,
    emphasized: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy in nats of the real target tokens, and their number, without waiting for the GPU.

    emphasis: finds the tokens that weigh `emphasized`, others 1.
    """
    (states, weight), real = model.output(model(batch).flatten(0, 1)), model.predicted(batch).flatten()
    targets = batch.target_output.flatten()
    loss, count = linear_cross_entropy(states, weight, targets, label_smoothing, real=real), real.sum()
    if emphasis is not None:
        at = emphasis(batch.target_output).flatten() & real
        more = linear_cross_entropy(states, weight, targets, label_smoothing, real=at)
        loss = loss + (emphasized - 1) * at.sum() / count.clamp(min=1) * more
    return loss, count


def rounded(number: int, least: int = 1) -> int:
    """The next multiple of an eighth to a sixteenth of the number, and of `least`: few different ones."""
    step = max(least, 1 << max(number.bit_length() - 4, 0))
    return -(-number // step) * step


def padded(batch: Batch, shape: tuple[int, int, int]) -> Batch:
    """A copy with so many examples, source and target tokens; pads are zeros."""
    examples, source, target = shape

    def fit(name: str, x: Tensor) -> Tensor:
        width = source if name.startswith("source") else target
        return pad(x, (0, width - x.shape[1], 0, examples - len(x))).clone()

    fitted: dict[str, Any] = {name: fit(name, x) for name, x in batch.tensors.items()}
    return replace(batch, **fitted)


def fill(place: Batch, batch: Batch) -> None:
    """Copy a batch into a larger one; what else that holds are pads."""
    given = batch.tensors
    for name, x in place.tensors.items():
        if name.endswith("mask"):
            x.zero_()
        x[: len(batch), : given[name].shape[1]].copy_(given[name], non_blocking=True)
