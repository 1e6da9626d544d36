"""Time whole training steps of our models and of other libraries' transformers by document length.

    python -m scripts.bench_training [--lengths 128 512 2048] [--threads 2] [--precisions float32] ...

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

from scaleformer.model.attention import MECHANISMS
from scaleformer.system.allocator import bound_kernel_caches, use_huge_pages
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import one_line_errors
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import NonEmpty, OneOf, Positive, Range, from_mapping
from scripts.arguments import Parser
from scripts.bench_training.models import Sizes, add_sizes, available_memory, with_sizes
from scripts.bench_training.peers import JOEYNMT, MARIAN, PACKAGES, T5, peer_versions
from scripts.bench_training.report import draw_training, training_tables
from scripts.bench_training.steps import GIB, PEERS, Limits, StepCost, measure_steps, product_rates


@dataclass(frozen=True)
class Options:
    """The settings; `python -m scripts.bench_training --help` describes them."""

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


def parse(given: Sequence[str] | None) -> Options:
    """The settings of a command line. Raises ValueError for unknown ones, and for values out of bounds."""
    parser = Parser("python -m scripts.bench_training", __doc__)
    names: dict[str, Any] = {"nargs": "*", "metavar": "NAME"}
    systems = ("scaleformer", "segment_recall", "softmax", MARIAN, T5, JOEYNMT)
    parser.add_argument("--systems", default=systems, help="our attentions, and peers", **names)
    add_sizes(parser)
    lengths = (128, 512, 2048, 8192, 32768)
    parser.add_argument("--lengths", nargs="*", type=int, default=lengths, help="tokens of a document")
    tokens = "source tokens of a batch, with as many target tokens; longer documents form their own batch"
    parser.add_argument("--batch-tokens", type=int, default=2048, help=tokens)
    parser.add_argument("--segment", type=int, default=25, help="tokens of a segment, its <sep> included")
    precisions = ("float32", "bfloat16")
    parser.add_argument("--precisions", default=precisions, help="float32, bfloat16 (autocast)", **names)
    parser.add_argument("--repeats", type=int, default=3, help="fewest timed steps of each system")
    seconds = "time for one length; slow systems stop after two steps when it is used up"
    parser.add_argument("--seconds", type=float, default=6.0, help=seconds)
    limit = "most seconds of a step; systems predicted to need longer are skipped"
    parser.add_argument("--step-limit", type=float, default=8.0, help=limit)
    memory = "most GiB of a step; None is four fifths of the free memory"
    parser.add_argument("--memory-limit", type=float, help=memory)
    parser.add_argument("--threads", type=int, help="of the CPU; None is torch's default")
    parser.add_argument("--output", default="runs/benchmarks", help="folder of training.json and its figure")
    return from_mapping(Options, with_sizes(vars(parser.parse_args(given))), "")


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


def main(given: Sequence[str] | None = None) -> None:
    """Measure the steps of all systems at all lengths; write tables, a figure and the results file."""
    options = parse(given)
    set_up_cpu(options.threads)
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


if __name__ == "__main__":
    use_huge_pages()  # as commands do
    bound_kernel_caches()
    with one_line_errors():
        main()
