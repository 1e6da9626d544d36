"""Time whole training steps of our models and of other libraries' transformers by document length.

    scaleformer benchmark training [lengths=[128,512,2048]] [threads=2] [precisions=[float32]] ...
    scaleformer benchmark training device=cuda       # on a GPU
    scaleformer benchmark training long=65536        # one step of the preset `base` on a pair of long documents
    scaleformer benchmark training profile=2048      # the time of a step by kind of operator, in each precision

All systems of a length take turns in one process, with the same sizes, tokens, precision and optimizer. Peers that are
not installed, and lengths that a system lacks memory or time for, are skipped with a note. Prints tables, writes
OUTPUT/training.json and OUTPUT/training.png; `page=docs/benchmarks.md` writes the page of all benchmarks with results
in OUTPUT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from scaleformer.benchmarks.long_step import long_steps
from scaleformer.benchmarks.models import Sizes, available_memory
from scaleformer.benchmarks.page import draw_training, profile_tables, training_tables, write_page
from scaleformer.benchmarks.peers import PACKAGES, peer_versions
from scaleformer.benchmarks.step_profile import profile_steps
from scaleformer.benchmarks.training import GIB, PEERS, Limits, StepCost, measure_steps, product_rates
from scaleformer.model.attention import MECHANISMS
from scaleformer.system.devices import resolve_device
from scaleformer.system.files import check_file
from scaleformer.system.provenance import provenance, write_result

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/benchmark_training.yaml describes them."""

    systems: tuple[str, ...]
    sizes: Sizes
    lengths: tuple[int, ...]
    batch_tokens: int
    segment: int
    precisions: tuple[str, ...]
    repeats: int
    seconds: float
    step_limit: float
    memory_limit: float | None
    long: int | None
    long_sizes: Sizes
    long_memory: float
    profile: int | None
    threads: int | None
    device: str
    output: str
    page: str | None

    def __post_init__(self) -> None:
        """Raises ValueError for settings that cannot be measured."""
        choices = {"systems": (*MECHANISMS, *PEERS), "precisions": PRECISIONS}
        for name, known in choices.items():
            unknown = sorted(set(getattr(self, name)) - set(known))
            if unknown or not getattr(self, name):
                raise ValueError(f"{name}={list(getattr(self, name))}: choose at least one of {', '.join(known)}")
        if not self.lengths or min(self.lengths) < 8:
            raise ValueError(f"lengths={list(self.lengths)}: give at least one, each at least 8")
        for name, minimum in {"batch_tokens": 1, "segment": 2, "repeats": 1, "long": 8, "profile": 8}.items():
            if (value := getattr(self, name)) is not None and value < minimum:
                raise ValueError(f"{name}={value}: wanted at least {minimum}")
        if self.long is not None and self.profile is not None:
            raise ValueError(f"long={self.long}, profile={self.profile}: give one of the two")
        if (self.long or self.profile) and self.device != "cpu":
            raise ValueError(f"device={self.device}: long and profile measure a CPU; use device=cpu")


def compare(options: Options, console: Console) -> Iterator[dict[str, Any]]:
    """The rows of all precisions, and the peaks of the machine: what is measured so far, after each length."""
    installed, device = peer_versions(), resolve_device(options.device)
    systems = [s for s in options.systems if PACKAGES.get(s, "") in ("", *installed)]
    notes = [f"{s} left out: not installed." for s in options.systems if s not in systems]
    memory = 0.8 * available_memory(device) if options.memory_limit is None else options.memory_limit * GIB
    limits = Limits(options.step_limit, memory, options.seconds, options.repeats)
    rows: list[StepCost] = []
    peaks = {}
    with console.status("") as status:
        for precision in options.precisions:
            torchs, ours = product_rates(getattr(torch, precision), device)
            peaks[precision] = max(torchs, ours)
            notes.append(
                f"A {precision} product of large matrices: {torchs / 1e12:.2f} TFLOP/s with torch, "
                f"{ours / 1e12:.2f} with `scaleformer.ops.common.matmul`."
            )
            for more in measure_steps(
                systems,
                options.sizes,
                precision,
                options.lengths,
                options.batch_tokens,
                options.segment,
                limits,
                peaks[precision],
                status.update,
                device,
            ):
                rows += more
                yield {"peaks": peaks, "rows": [asdict(row) for row in rows], "notes": notes}


def run_lengths(options: Options, console: Console) -> None:
    """Measure the steps of all systems at all lengths; write tables, a figure and the results file."""
    written = Path(options.output) / "training.json"
    conditions = provenance(resolve_device(options.device), 0)
    conditions["versions"] |= peer_versions()
    result: dict[str, Any] = {}
    for found in compare(options, console):
        result = {**conditions, "settings": asdict(options), **found}
        write_result(written, result)  # nothing measured is lost where the run is stopped
    text = "\n\n".join([*training_tables(result), *result["notes"]])
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    draw_training(result["rows"], written.with_suffix(".png"))
    console.print(f"{written} and training.png", highlight=False, soft_wrap=True)


def run_long(options: Options, console: Console) -> None:
    """Measure the step on a pair of long documents for each system of ours; has its own results file."""
    assert options.long is not None
    results = []
    ours = [system for system in options.systems if system not in (*PEERS, "softmax")]
    for precision in options.precisions:
        for result in long_steps(
            ours,
            options.long_sizes,
            precision,
            options.long,
            options.segment,
            options.long_memory * GIB,
            torch.get_num_threads(),
        ):
            words = result.failure or f"{result.seconds:,.0f} s, {result.resident / GIB:.1f} GiB peak resident memory"
            name = f"{result.system}, {precision}, 2 x {result.tokens:,} tokens"
            console.print(f"{name}: {words}", highlight=False, soft_wrap=True)
            results.append(asdict(result))
    written = write_result(
        Path(options.output) / "training_long.json",
        {**provenance("cpu", 0), "settings": asdict(options), "steps": results},
    )
    console.print(f"{written}", highlight=False, soft_wrap=True)


def run_profile(options: Options, console: Console) -> None:
    """Profile a step of each system of ours; has its own results file."""
    assert options.profile is not None
    arguments = options.profile, options.batch_tokens, options.segment, options.repeats
    profiles = []
    for system in (system for system in options.systems if system not in PEERS):
        with console.status(f"{system}, {options.profile:,} tokens"):
            profiles.append(asdict(profile_steps(system, options.sizes, options.precisions, *arguments)))
    result = {**provenance("cpu", 0), "settings": asdict(options), "profiles": profiles}
    console.print("\n\n".join(profile_tables(result)), highlight=False, markup=False, soft_wrap=True)
    written = write_result(Path(options.output) / "training_profile.json", result)
    console.print(f"{written}", highlight=False, soft_wrap=True)


def main(options: Options, given: Sequence[str]) -> None:
    """Measure, print and write."""
    check_file("page", options.page)
    console = Console()
    if options.long is not None:
        run_long(options, console)
    elif options.profile is not None:
        run_profile(options, console)
    else:
        run_lengths(options, console)
    if options.page:
        console.print(f"{write_page(Path(options.output), Path(options.page))}", highlight=False, soft_wrap=True)
