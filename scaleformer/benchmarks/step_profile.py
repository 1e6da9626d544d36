"""The time of a training step by kind of operator, in one precision and another."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from scaleformer.benchmarks.models import Sizes, make_batch
from scaleformer.benchmarks.training import TrainedSystem
from scaleformer.system.timing import profile_cpu

WEIGHTS, BATCHED, COPIES = "products with weights", "products of attention", "copies, casts, gathers, sums by place"
OTHER, BETWEEN, WHOLE = "all other operators", "between operators", "the whole step"
KINDS = (WEIGHTS, BATCHED, COPIES, OTHER, BETWEEN, WHOLE)
#: kinds by operator name, in this order; each operator excludes those that it calls
_NAMES = {
    BATCHED: ("bmm", "baddbmm", "scaled_dot_product"),
    WEIGHTS: ("mm", "convolution", "linear"),
    COPIES: ("copy", "index", "gather", "scatter", "cat", "fill", "zero", "embedding", "constant_pad"),
}


@dataclass(frozen=True)
class StepProfile:
    """seconds[precision][kind]: medians over the same number of steps in each precision, of one system at one length"""

    system: str
    length: int
    documents: int
    repeats: int
    seconds: Mapping[str, Mapping[str, float]]


def kind_of(operator: str) -> str:
    """The kind of an operator by its name in the profiler (`aten::bmm`)."""
    name = operator.split("::")[-1]
    return next((kind for kind, parts in _NAMES.items() if any(part in name for part in parts)), OTHER)


def profile_steps(
    system: str,
    sizes: Sizes,
    precisions: Sequence[str],
    length: int,
    batch_tokens: int,
    segment: int,
    repeats: int,
) -> StepProfile:
    """Profile steps on one batch, the precisions in turn, each after two warm-up steps."""
    batch = make_batch(
        max(1, batch_tokens // length), length, segment, sizes.vocabulary, torch.Generator().manual_seed(length)
    )
    steps = {}
    for precision in precisions:
        torch.manual_seed(0)
        steps[precision] = partial(TrainedSystem(system, sizes, length, precision).step, batch)
        steps[precision]()
    times: dict[str, dict[str, list[float]]] = {p: {kind: [] for kind in KINDS} for p in precisions}
    for turn in range(1 + repeats):
        for precision, step in steps.items():
            for kind, seconds in _profile_step(step).items():
                if turn:
                    times[precision][kind].append(seconds)
    medians = {p: {kind: median(values) for kind, values in kinds.items()} for p, kinds in times.items()}
    return StepProfile(system, length, len(batch), repeats, medians)


def _profile_step(step: partial[None]) -> dict[str, float]:
    """Seconds of one step by kind: in the calling thread, which waits for its worker threads."""
    seconds = dict.fromkeys(KINDS, 0.0)

    def timed() -> None:
        start = time.perf_counter()
        step()
        seconds[WHOLE] = time.perf_counter() - start

    for event in profile_cpu(timed).key_averages():
        if "::" in event.key and "Backward" not in event.key and not event.key.startswith("autograd::"):
            seconds[kind_of(event.key)] += event.self_cpu_time_total / 1e6
    seconds[BETWEEN] = seconds[WHOLE] - sum(seconds[kind] for kind in (*_NAMES, OTHER))
    return seconds
