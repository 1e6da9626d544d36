"""Time whole training steps of our models and of other libraries' transformers by document length.

    scaleformer benchmark training [lengths=[128,512,2048]] [threads=2] [precisions=[float32]] ...

All systems of a length take turns in one process, with the same sizes, tokens, precision and optimizer. Peers that are
not installed, and lengths that a system lacks memory or time for, are skipped with a note. Prints tables, writes
OUTPUT/training.json and OUTPUT/training.png.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from rich.console import Console

from scaleformer.benchmarks.models import Sizes, available_memory
from scaleformer.benchmarks.models_report import draw_training, training_tables
from scaleformer.benchmarks.peers import PACKAGES, peer_versions
from scaleformer.benchmarks.training import GIB, PEERS, Limits, StepCost, measure_steps, product_rates
from scaleformer.model.attention import MECHANISMS
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import NonEmpty, OneOf, Positive, Range


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/benchmark_training.yaml describes them."""

    systems: NonEmpty[Annotated[str, OneOf((*MECHANISMS, *PEERS))]]
    sizes: Sizes
    lengths: NonEmpty[Annotated[int, Range(ge=8)]]
    batch_tokens: Positive
    segment: Annotated[int, Range(ge=2)]
    precisions: NonEmpty[Literal["float32", "bfloat16"]]
    repeats: Positive
    seconds: float
    step_limit: float
    memory_limit: float | None
    threads: Positive | None
    output: str


def compare(options: Options) -> Iterator[dict[str, Any]]:
    """The rows of all precisions, and the peaks of the machine: what is measured so far, after each length."""
    installed = peer_versions()
    systems = [s for s in options.systems if PACKAGES.get(s, "") in ("", *installed)]
    notes = [f"{s} left out: not installed." for s in options.systems if s not in systems]
    memory = 0.8 * available_memory() if options.memory_limit is None else options.memory_limit * GIB
    limits = Limits(options.step_limit, memory, options.seconds, options.repeats)
    rows: list[StepCost] = []
    peaks = {}
    with Console().status("") as status:
        for precision in options.precisions:
            torchs, ours = product_rates(getattr(torch, precision))
            peaks[precision] = max(torchs, ours)
            notes.append(
                f"A {precision} product of large matrices: {torchs / 1e12:.2f} TFLOP/s with torch, "
                f"{ours / 1e12:.2f} with `scaleformer.ops.common.matmul`."
            )
            batches = options.lengths, options.batch_tokens, options.segment
            how = limits, peaks[precision], status.update
            for more in measure_steps(systems, options.sizes, precision, *batches, *how):
                rows += more
                yield {"peaks": peaks, "rows": [asdict(row) for row in rows], "notes": notes}


def main(options: Options, given: Sequence[str]) -> None:
    """Measure the steps of all systems at all lengths; write tables, a figure and the results file."""
    written = Path(options.output) / "training.json"
    conditions = provenance("cpu", 0)
    conditions["versions"] |= peer_versions()
    result: dict[str, Any] = {}
    for found in compare(options):
        result = {**conditions, "settings": asdict(options), **found}
        write_result(written, result)  # nothing measured is lost where the run is stopped
    print("\n\n".join([*training_tables(result), *result["notes"]]))
    draw_training(result["rows"], written.with_suffix(".png"))
    print(f"{written} and training.png")
