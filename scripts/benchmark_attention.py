"""Time the attention of this package against softmax attention, all scores and the paper's own algorithms.

    python scripts/benchmark_attention.py [lengths=[256,1024,4096]] [threads=2] [device=cuda] [dtype=bfloat16] ...
    python scripts/benchmark_attention.py lengths=[2048,8192,32768,65536] softmax_limit=2048 paper_limit=0 \\
        quadratic_limit=0 memory=false                       # segment-gated beside plain kernelized attention

The peer is torch's fused softmax attention, without relative positions. All systems of one length take turns in one
process; times are medians of at least `repeats` calls after one to warm up. Prints tables of times, of the time of
segment-gated over that of plain kernelized attention, and of growth; writes OUTPUT/attention.json and
OUTPUT/attention.png.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import linear_regression
from typing import Any

import matplotlib

matplotlib.use("Agg")

import torch
from matplotlib import pyplot
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scaleformer.cli import one_line_errors
from scaleformer.evaluation.results import device_in_words, provenance, write_result
from scaleformer.ops import relative_kernel_attention, segment_gated_attention
from scaleformer.ops._benchmark import alternate, peak_memory
from scaleformer.ops.reference import paper_attention

SOFTMAX = "softmax (torch, fused)"
KERNEL = "scaleformer"
GATED = "segment-gated"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SLOPE_FROM = 2048  # tokens from which on growth is measured
PASSES = ("forward", "forward+backward")


@dataclass
class Options:
    """The settings, each `key=value` on the command line."""

    lengths: list[int] = field(default_factory=lambda: [256, 512, 1024, 2048, 4096, 8192])
    batch: int = 1
    heads: int = 8
    width: int = 64  # of a head
    horizon: int = 16
    reach: int = 4  # of the gate, in segments
    segments: list[int] = field(default_factory=lambda: [8, 25, 100])  # tokens in each
    softmax_limit: int = 1 << 17  # the longest length for softmax
    quadratic_limit: int = 2048  # the longest length for the algorithm that makes all scores
    paper_limit: int = 2048  # and for the paper's own algorithms
    repeats: int = 5
    seconds: float = 0.5  # the least time to spend on one comparison
    clock: str = "wall"  # or cpu: the time of this process alone, summed over threads, for a machine with other work
    threads: int | None = None  # of a CPU; None for as many as torch takes
    device: str = "cpu"
    dtype: str = "float32"
    memory: bool = True
    seed: int = 0
    output: str = "runs/benchmarks"


@dataclass(frozen=True)
class Row:
    """One measurement; times in seconds, memory in bytes on top of the arguments.

    ratio         softmax time / this time, None where softmax was not measured
    kernel_ratio  this time / the time of `scaleformer`
    """

    direction: str
    passes: str
    length: int
    system: str
    seconds: float
    ratio: float | None
    kernel_ratio: float
    memory: int | None


def make_systems(options: Options, length: int, causal: bool) -> tuple[dict[str, Callable[[], Tensor]], list[Tensor]]:
    """The systems to compare at one length, and the tensors that have gradients."""
    generator = torch.Generator().manual_seed(options.seed)
    dtype, device = getattr(torch, options.dtype), torch.device(options.device)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype).requires_grad_()

    shape = options.batch, options.heads, length, options.width
    q, k, v = normal(*shape), normal(*shape), normal(*shape)
    rel = normal(2 * options.horizon + 1, options.width)
    log_gate = normal(options.heads, 2 * options.reach + 1)
    kernel = partial(relative_kernel_attention, q, k, v, rel, causal=causal)
    systems: dict[str, Callable[[], Tensor]] = {}
    if length <= options.softmax_limit:
        systems[SOFTMAX] = partial(scaled_dot_product_attention, q, k, v, is_causal=causal)
    systems[KERNEL] = kernel
    if length <= options.quadratic_limit:
        systems["all scores"] = partial(kernel, algorithm="quadratic")
    if length <= options.paper_limit:
        systems["the paper's algorithms"] = partial(paper_attention, q, k, v, rel, causal=causal)
    for tokens in options.segments:
        numbers = (torch.arange(length, device=device) // tokens).expand(options.batch, -1)
        gated = partial(segment_gated_attention, q, k, v, rel, log_gate, numbers, numbers, causal=causal)
        systems[f"{GATED}, {tokens} tokens each"] = gated
    return systems, [q, k, v, rel, log_gate]


def measure(options: Options, length: int, causal: bool) -> list[Row]:
    """All systems at one length in one direction, forward, and forward and backward."""
    systems, leaves = make_systems(options, length, causal)
    device = torch.device(options.device)

    def forward(system: Callable[[], Tensor]) -> Tensor:
        with torch.no_grad():
            return system()

    def backward(system: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        out = system()
        return torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

    rows = []
    for name, run in zip(PASSES, (forward, backward), strict=True):
        functions: dict[str, Callable[[], object]] = {system: partial(run, f) for system, f in systems.items()}
        times = alternate(functions, device, options.repeats, options.seconds, CLOCKS[options.clock])
        for system, seconds in times.items():
            memory = peak_memory(functions[system], device) if options.memory else None
            direction = "causal" if causal else "bidirectional"
            ratio = times[SOFTMAX] / seconds if SOFTMAX in times else None
            rows.append(Row(direction, name, length, system, seconds, ratio, seconds / times[KERNEL], memory))
    return rows


def show(rows: list[Row], console: Console) -> None:
    for direction in dict.fromkeys(row.direction for row in rows):
        for passes in PASSES:
            table = Table(title=f"{direction}, {passes}: milliseconds (softmax time / this time) and MiB")
            chosen = [row for row in rows if (row.direction, row.passes) == (direction, passes)]
            lengths = list(dict.fromkeys(row.length for row in chosen))
            table.add_column("system", min_width=len(SOFTMAX), overflow="fold")
            for length in lengths:
                table.add_column(f"{length}", justify="right")
            for system in dict.fromkeys(row.system for row in chosen):
                cells = {row.length: _cell(row) for row in chosen if row.system == system}
                table.add_row(system, *(cells.get(length, "") for length in lengths))
            console.print(table)


def _cell(row: Row) -> str:
    ratio = "" if row.ratio is None else f" ({row.ratio:.2f})"
    memory = "" if row.memory is None else f"\n{row.memory / 2**20:.1f} MiB"
    return f"{row.seconds * 1e3:.3g}{ratio}{memory}"


def show_gated(rows: list[Row], console: Console) -> None:
    """The time of segment-gated over that of plain kernelized attention, and the growth of both."""
    chosen = [row for row in rows if row.system.startswith((GATED, KERNEL))]
    lengths = sorted({row.length for row in chosen})
    growth = slopes(rows)
    table = Table(title=f"time / time of {KERNEL} at the same length; slope of log time from {SLOPE_FROM} tokens on")
    table.add_column("system", min_width=len(SOFTMAX), overflow="fold")
    for name in (*(str(length) for length in lengths), "slope"):
        table.add_column(name, justify="right")
    for key in dict.fromkeys(_key(row) for row in chosen):
        cells = {row.length: f"{row.kernel_ratio:.2f}" for row in chosen if _key(row) == key}
        slope = f"{growth[key]:.2f}" if key in growth else ""
        table.add_row(key, *(cells.get(length, "") for length in lengths), slope)
    console.print(table)


def _key(row: Row) -> str:
    return ", ".join((row.direction, row.passes, row.system))


def slopes(rows: list[Row], quantity: str = "seconds") -> dict[str, float]:
    """The growth of each system: the slope, by least squares, of the logarithm of a quantity, `seconds` or `memory`,
    against that of the length, from `SLOPE_FROM` on."""
    found = {}
    for key in dict.fromkeys(_key(row) for row in rows):
        points = [(row.length, getattr(row, quantity)) for row in rows if _key(row) == key and row.length >= SLOPE_FROM]
        if len(points) > 1 and all(value for _, value in points):
            found[key] = linear_regression(*(list(map(math.log, x)) for x in zip(*points, strict=True))).slope
    return found


def draw(rows: list[Row], path: Path, conditions: str) -> None:
    """Time against length on logarithmic scales: a slope of one is linear growth, two is quadratic."""
    directions = list(dict.fromkeys(row.direction for row in rows))
    figure, axes = pyplot.subplots(len(directions), 2, figsize=(12, 4.5 * len(directions)), squeeze=False)
    for direction, line in zip(directions, axes, strict=True):
        for passes, axis in zip(PASSES, line, strict=True):
            chosen = [row for row in rows if (row.direction, row.passes) == (direction, passes)]
            for system in dict.fromkeys(row.system for row in chosen):
                points = sorted((row.length, row.seconds * 1e3) for row in chosen if row.system == system)
                axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=system)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=2)
            axis.set_title(f"{direction}, {passes}")
            axis.set_xlabel("tokens")
            axis.set_ylabel("milliseconds")
            axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    figure.suptitle(conditions, fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def read_options(arguments: list[str] | None = None) -> Options:
    """The options of a command line. Raises errors of OmegaConf for unknown keys and values of another type."""
    given = OmegaConf.from_cli(arguments)
    options = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Options), given))
    assert isinstance(options, Options)
    if not options.lengths or min(options.lengths) < 1:
        raise ValueError(f"lengths is {options.lengths}: give at least one, each at least 1")
    if options.clock not in CLOCKS:
        raise ValueError(f"clock is {options.clock!r}: choose one of {', '.join(CLOCKS)}")
    if not isinstance(getattr(torch, options.dtype, None), torch.dtype):
        raise ValueError(f"dtype is {options.dtype!r}: give the name of a torch type, such as float32 or bfloat16")
    return options


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    options = read_options(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    console = Console()
    if not console.is_terminal:
        console = Console(width=30 + 18 * len(options.lengths))  # a file is as wide as the table
    rows: list[Row] = []
    for length in sorted(options.lengths):
        for causal in (True, False):
            with console.status(f"{length} tokens, {'causal' if causal else 'bidirectional'}"):
                rows += measure(options, length, causal)
    show(rows, console)
    show_gated(rows, console)
    output = Path(options.output)
    conditions = provenance(options.device, options.seed)
    result: dict[str, Any] = {
        **conditions,
        "settings": asdict(options),
        "slopes": slopes(rows),
        "memory_slopes": slopes(rows, "memory"),
        "rows": [asdict(row) for row in rows],
    }
    words = device_in_words(conditions["device"])
    words += f", {options.dtype}, batch {options.batch}, {options.heads} heads of {options.width}, R={options.horizon}"
    draw(rows, output / "attention.png", words)
    written = write_result(output / "attention.json", result)
    console.print(f"{words}\n{written} and attention.png beside it", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
