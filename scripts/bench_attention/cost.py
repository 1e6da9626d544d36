"""Times and memory of the attention operators against softmax attention, explicit scores and the paper's algorithms."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import linear_regression

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention

from scaleformer.ops import SegmentLayout, get_feature_map, relative_kernel_attention, segment_recall_attention
from scaleformer.ops.common.relative_positions import relative_scores
from scripts.bench_attention.options import (
    ALL,
    KERNEL,
    PAPER,
    PASSES,
    RECALL,
    SLOPE_FROM,
    SOFTMAX,
    Options,
)
from scripts.bench_attention.paper import algorithm_1, algorithm_2, paper_attention
from scripts.timing import alternate, peak_memory

CPU = torch.device("cpu")


@dataclass(frozen=True)
class AttentionCost:
    """One measurement; times in seconds, memory in bytes on top of the arguments.

    ratio   softmax time / this time, None where softmax was not measured
    memory  the peak; None if not measured
    saved   bytes kept for the backward pass per token and head, arguments included; None for a forward pass
    """

    case: str
    passes: str
    length: int
    system: str
    seconds: float
    ratio: float | None
    memory: int | None
    saved: float | None


@dataclass(frozen=True)
class Arguments:
    """The tensors of one length; cross-attention has no rel, since it has no distances."""

    q: Tensor
    k: Tensor
    v: Tensor
    rel: Tensor
    log_gate: Tensor
    salience: Tensor
    leaves: list[Tensor] = field(default_factory=list)


def make_arguments(options: Options, length: int) -> Arguments:
    generator = torch.Generator().manual_seed(options.seed)
    dtype = getattr(torch, options.dtype)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    shape = options.batch, options.heads, length, options.width
    x = Arguments(
        normal(*shape), normal(*shape), normal(*shape),
        normal(2 * options.horizon + 1, options.width), normal(options.heads, 2 * options.near + 3),
        normal(*shape[:3]),
    )  # fmt: skip
    x.leaves.extend([x.q, x.k, x.v, x.rel, x.log_gate, x.salience])
    return x


def segment_numbers(options: Options, length: int, tokens: int) -> Tensor:
    """(B, L) segments of `tokens` tokens."""
    return (torch.arange(length) // tokens).repeat(options.batch, 1)


Systems = Mapping[str, Callable[[], Tensor]]


def make_systems(options: Options, length: int, case: str) -> tuple[Systems, list[Tensor]]:
    """The systems to compare at one length, and the tensors that need gradients."""
    x = make_arguments(options, length)
    if "term" in case:
        return _make_terms(options, length, case, x), x.leaves
    causal, rel = case == "causal", None if case == "cross" else x.rel
    kernel = partial(relative_kernel_attention, x.q, x.k, x.v, rel, causal=causal)
    systems: dict[str, Callable[[], Tensor]] = {}
    if length <= options.softmax_limit:
        systems[SOFTMAX] = partial(scaled_dot_product_attention, x.q, x.k, x.v, is_causal=causal)
    systems[KERNEL] = kernel
    if options.part == "compare" and length <= options.quadratic_limit:
        systems[ALL] = partial(kernel, algorithm="quadratic")
    if options.part == "compare" and length <= options.paper_limit and rel is not None:
        systems[PAPER] = partial(paper_attention, x.q, x.k, x.v, rel, causal=causal)
    for tokens in options.segments if RECALL in options.mechanisms else ():
        numbers = segment_numbers(options, length, tokens)
        systems[f"{RECALL}, {tokens} tokens each"] = recall(options, x, rel, numbers, causal)
    return systems, x.leaves


def recall(options: Options, x: Arguments, rel: Tensor | None, numbers: Tensor, causal: bool) -> partial[Tensor]:
    """A call of `segment_recall_attention`; numbers: (B, L) segment numbers; all calls share one layout."""
    recency = torch.linspace(0, 1, options.heads)
    gates = x.log_gate, x.salience, recency
    layout = SegmentLayout(numbers, numbers)
    return partial(
        segment_recall_attention, x.q, x.k, x.v, rel, *gates, layout=layout, kept=options.kept, causal=causal
    )


def _make_terms(options: Options, length: int, case: str, x: Arguments) -> Systems:
    """S^rel V (ours: with zero keys, at the full cost of the operator) and phi(Q) phi(K)^T V."""
    phi = get_feature_map("elu1")
    causal = case.endswith("causal")

    def relative_of_all() -> Tensor:
        return relative_scores(phi(x.q) @ phi(x.rel).transpose(-1, -2), length) @ x.v  # (B, H, L, e)

    def kernel_of_all() -> Tensor:
        scores = phi(x.q) @ phi(x.k).transpose(-1, -2)  # (B, H, L, L)
        return (scores.tril() if causal else scores) @ x.v  # (B, H, L, e)

    def relative_of_ours() -> Tensor:
        zeros = torch.zeros_like(x.k)
        return relative_kernel_attention(phi(x.q), zeros, x.v, phi(x.rel), feature_map="mapped", algorithm="linear")

    def kernel_of_paper() -> Tensor:
        fq, fk = phi(x.q), phi(x.k)
        return algorithm_1(fq, fk, x.v) if causal else fq @ (fk.transpose(-1, -2) @ x.v)  # (B, H, L, e)

    relative = case == "relative term"
    systems: dict[str, Callable[[], Tensor]] = {
        KERNEL: relative_of_ours
        if relative
        else partial(relative_kernel_attention, x.q, x.k, x.v, causal=causal, algorithm="linear")
    }
    if length <= options.quadratic_limit:
        systems[ALL] = relative_of_all if relative else kernel_of_all
    if length <= options.paper_limit:
        systems[PAPER] = (lambda: algorithm_2(phi(x.q), phi(x.rel), x.v)) if relative else kernel_of_paper
    return systems


Runner = Callable[[Callable[[], Tensor]], object]


def forward(system: Callable[[], Tensor]) -> Tensor:
    with torch.no_grad():
        return system()


def forward_backward(system: Callable[[], Tensor], leaves: list[Tensor]) -> tuple[Tensor, ...]:
    out = system()
    return torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)


def measure_costs(options: Options, length: int, case: str) -> list[AttentionCost]:
    """All systems at one length in one case: forward, and forward with backward."""
    systems, leaves = make_systems(options, length, case)
    rows = []
    runs: tuple[Runner, Runner] = (forward, partial(forward_backward, leaves=leaves))
    for passes, run in zip(PASSES, runs, strict=True):
        functions: dict[str, Callable[[], object]] = {name: partial(run, system) for name, system in systems.items()}
        times = beside_softmax(functions, length, options)
        for system, (seconds, softmax) in times.items():
            memory = peak_memory(functions[system], CPU) if options.memory else None
            saved = None
            if options.memory and passes != "forward":
                saved = saved_bytes(systems[system]) / (options.batch * options.heads * length)
            ratio = None if softmax is None else softmax / seconds
            rows.append(AttentionCost(case, passes, length, system, seconds, ratio, memory, saved))
    gc.collect()  # profiles of long documents hold gigabytes
    return rows


def beside_softmax(
    functions: Mapping[str, Callable[[], object]], length: int, options: Options
) -> dict[str, tuple[float, float | None]]:
    """The seconds of each function, and those of softmax in the same rounds; None where softmax is not among them.

    Up to `pair_limit` tokens each alternates with softmax alone: a call of a millisecond depends on what the call
    before left in the caches, and explicit scores and the paper's algorithms leave nothing. Beyond, all take turns.
    """
    timed = partial(alternate, repeats=options.repeats, seconds=options.seconds)
    if SOFTMAX not in functions or length > options.pair_limit:
        times = timed(functions)
        return {name: (seconds, times.get(SOFTMAX)) for name, seconds in times.items()}
    found: dict[str, tuple[float, float | None]] = {}
    for name, function in functions.items():
        if name != SOFTMAX:
            pair = timed({SOFTMAX: functions[SOFTMAX], name: function})
            found.setdefault(SOFTMAX, (pair[SOFTMAX], pair[SOFTMAX]))
            found[name] = pair[name], pair[SOFTMAX]
    return found


def key_of(row: AttentionCost) -> str:
    return ", ".join((row.case, row.passes, row.system))


def slopes(rows: Iterable[AttentionCost], quantity: str = "seconds") -> dict[str, float]:
    """The growth of each system: the least-squares slope of the logarithm of a quantity, `seconds` or `memory`, against
    the logarithm of the length, from `SLOPE_FROM` on; needs at least three lengths."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row.length >= SLOPE_FROM and getattr(row, quantity):
            points.setdefault(key_of(row), []).append((row.length, getattr(row, quantity)))
    return {
        key: linear_regression(*(list(map(math.log, x)) for x in zip(*found, strict=True))).slope
        for key, found in points.items()
        if len(found) > 2
    }


def saved_bytes(function: Callable[[], object]) -> int:
    """The bytes that the function saves for its backward pass, arguments included; each storage counts once."""
    kept: dict[int, Tensor] = {}  # held until the end, so that no address is reused

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        out = function()
    assert out is not None
    return sum(x.untyped_storage().nbytes() for x in kept.values())
