"""Times and memory of whole training steps, ours and peers', in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from scaleformer.batch import Batch
from scaleformer.model.transformer import Transformer
from scaleformer.ops.common.matmul import linear
from scaleformer.training.graphs import StepGraphs
from scaleformer.training.optimization import OptimizerConfig
from scripts.bench_training import peers
from scripts.bench_training.models import Sizes, make_batch, make_model, our_loss
from scripts.timing import alternate, peak_memory, wait

PEERS = (peers.MARIAN, peers.T5, peers.JOEYNMT)
GIB = 2**30
CPU = torch.device("cpu")


class TrainedSystem:
    """A model of one system, its optimizer, and a whole step: gradients, clipping, Adam.

    positions  the length of the longest document
    graphs     compute gradients by captured graphs of CUDA, as training does
    """

    def __init__(
        self,
        system: str,
        sizes: Sizes,
        positions: int,
        precision: str,
        device: torch.device = CPU,
        graphs: bool = False,
    ) -> None:
        self.model, self.loss = make_system(system, sizes, positions)
        self.model.to(device).train()
        self.device = device
        self.optimizer = OptimizerConfig(learning_rate=1e-4).build(self.model.named_parameters(), fused=True)
        self.dtype = getattr(torch, precision)
        self.graphs: StepGraphs | None = None
        if graphs:
            assert isinstance(self.model, Transformer)
            self.graphs = StepGraphs(self.model, dtype=self.dtype, unit=1e4)

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.graphs is None:
            with self._autocast():
                loss = self.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.graphs.run(batch)
            self.graphs.add_gradients()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def held(self) -> int:
        """Bytes of parameters and optimizer states."""
        states = [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        return sum(t.numel() * t.element_size() for t in (*self.model.parameters(), *states))

    def _autocast(self) -> AbstractContextManager[object]:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, dtype=self.dtype)


def make_system(system: str, sizes: Sizes, positions: int) -> tuple[nn.Module, peers.Loss]:
    """The model of a peer or of one of our attentions, by name, and its loss on a batch, without label smoothing."""
    if system == peers.JOEYNMT:
        model = peers.make_joeynmt(sizes, positions)
        return model, peers.joeynmt_loss(model)
    if system in PEERS:
        make = peers.make_marian if system == peers.MARIAN else peers.make_t5
        model = make(sizes, positions)
        return model, peers.transformers_loss(model)
    ours = make_model(system, sizes)
    return ours, partial(our_loss, ours)


@dataclass(frozen=True)
class StepCost:
    """One system at one length; `skipped` is the reason for missing numbers, empty if there are numbers.

    seconds    the median time of a step, over `count` steps after one warm-up
    speed      source and target tokens per second
    ratio      this speed divided by that of the fastest peer in the same rounds; None where no peer ran
    share      of the machine's measured matrix-product peak, counting only the products with weight matrices
    memory     the peak bytes of torch in a step, parameters and optimizer states included
    """

    system: str
    precision: str
    length: int
    documents: int
    seconds: float = 0.0
    count: int = 0
    speed: float = 0.0
    ratio: float | None = None
    share: float = 0.0
    memory: float = 0.0
    skipped: str = ""


@dataclass
class Limits:
    """Limits of a comparison: seconds of a step (twice as many for the warm-up), bytes of a step, seconds of all timed
    rounds of one length, and rounds."""

    step_seconds: float
    memory: float
    seconds: float
    repeats: int


@dataclass
class Course:
    """The measurements of one system so far: length -> seconds and bytes per source token."""

    held: int = 0
    seconds: dict[int, float] = field(default_factory=dict)
    memory: dict[int, float] = field(default_factory=dict)

    def reason_to_skip(self, length: int, tokens: int, limits: Limits) -> str:
        """Why a step at this length is infeasible; empty if it is feasible or unknown."""
        if not self.seconds:
            return ""
        memory = self.held + foresee(self.memory, length, margin=0.3, alone=1.0) * tokens
        if memory > limits.memory:
            return f"skipped: about {memory / GIB:,.0f} GiB"
        seconds = foresee(self.seconds, length, margin=0.0, alone=0.5) * tokens
        return f"skipped: about {seconds:,.0f} s a step" if seconds > limits.step_seconds else ""


def foresee(known: dict[int, float], length: int, margin: float, alone: float) -> float:
    """The cost of a token at a larger length: the power law through the last two lengths, with a margin added to its
    exponent if that is above 0.1; at most quadratic. `alone` is the exponent where only one length is known: the worst
    case for memory, less for time, which would otherwise skip quick measurements."""
    lengths = sorted(known)
    last = lengths[-1]
    exponent = alone
    if len(lengths) > 1:
        before = lengths[-2]
        exponent = math.log(known[last] / known[before]) / math.log(last / before)
        exponent = min(max(exponent + (margin if exponent > 0.1 else 0.0), 0.0), 1.0)
    return known[last] * (length / last) ** exponent


def measure_steps(
    systems: list[str],
    sizes: Sizes,
    precision: str,
    lengths: Sequence[int],
    batch_tokens: int,
    segment: int,
    limits: Limits,
    peak: float,
    say: Callable[[str], None],
) -> Iterator[list[StepCost]]:
    """All systems in one precision, in turn: the rows of one length after the other.

    peak  FLOP/s of a matrix product, for the share of it (`product_rates`)
    say   receives the current step
    """
    trained, courses = {}, {}
    for system in systems:
        say(f"{precision}, {system}: building")
        torch.manual_seed(0)
        trained[system] = TrainedSystem(system, sizes, max(lengths), precision)
        trained[system].step(make_batch(1, 16, 8, sizes.vocabulary, torch.Generator().manual_seed(0)))
        courses[system] = Course(trained[system].held())
    for length in sorted(lengths):
        rows: list[StepCost] = []
        say(f"{precision}, {length:,} tokens")
        batch = make_batch(
            max(1, batch_tokens // length), length, segment, sizes.vocabulary, torch.Generator().manual_seed(length)
        )
        tokens = batch.source.numel()
        skipped = {system: courses[system].reason_to_skip(length, tokens, limits) for system in systems}
        steps = {system: partial(trained[system].step, batch) for system in systems if not skipped[system]}
        memory = {}
        for system in list(steps):  # the warm-up too
            start = time.perf_counter()
            memory[system] = peak_memory(steps[system], CPU)
            if (warm_up := time.perf_counter() - start) > 2 * limits.step_seconds:
                skipped[system] = f"skipped: {warm_up:,.0f} s to warm up"
                del steps[system]
        times = take_turns(steps, limits)
        seconds = {system: median(values) for system, values in times.items()}
        best = min((seconds[system] for system in steps if system in PEERS), default=None)
        for system in systems:
            if skipped[system]:
                rows.append(StepCost(system, precision, length, len(batch), skipped=skipped[system]))
                continue
            took = seconds[system]
            # not the median: a slow moment should skip less
            courses[system].seconds[length] = min(times[system]) / tokens
            courses[system].memory[length] = memory[system] / tokens
            ratio = None if best is None else best / took
            share = weight_flops(sizes, tokens, tokens) / took / peak
            costs = took, len(times[system]), 2 * tokens / took, ratio, share, courses[system].held + memory[system]
            rows.append(StepCost(system, precision, length, len(batch), *costs))
        yield rows


def take_turns(
    steps: Mapping[str, Callable[[], None]], limits: Limits, device: torch.device = CPU
) -> dict[str, list[float]]:
    """Seconds of each step, all in turn, `limits.repeats` times; those that have used more than their share of
    `limits.seconds` stop after the second time."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(limits.repeats):
        for name, step in steps.items():
            if len(times[name]) >= 2 and sum(times[name]) > limits.seconds / len(steps):
                continue
            wait(device)
            start = time.perf_counter()
            step()
            wait(device)
            times[name].append(time.perf_counter() - start)
    return times


def product_rates(dtype: torch.dtype, size: int = 1536, repeats: int = 7) -> tuple[float, float]:
    """FLOP/s of a square matrix product with torch and with `scaleformer.ops.common.matmul`, medians of a few in turn:
    the larger one is the peak of this machine with the set number of threads."""
    a, b = torch.randn(2, size, size).to(dtype)
    times = alternate({"torch": lambda: a @ b, "ours": lambda: linear(a, b)}, repeats, 0.0)
    return 2 * size**3 / times["torch"], 2 * size**3 / times["ours"]


def weight_flops(sizes: Sizes, source: int, target: int) -> float:
    """Floating-point operations of the products with weight matrices in a step, forward and backward: 6 for each weight
    and token that it processes [Kaplan 2020, section 2.1]."""
    D, F = sizes.width, sizes.feedforward
    encoder = sizes.layers * (4 * D * D + 2 * D * F + 2 * D * D)  # with keys and values of cross-attention
    decoder = sizes.layers * (4 * D * D + 2 * D * F + 2 * D * D) + D * sizes.vocabulary
    return 6.0 * (encoder * source + decoder * target)
