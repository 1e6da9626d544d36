"""Time decoding by position, compare it with `generate` of Hugging Face transformers, and whole translations with
CTranslate2.

    python -m scripts.bench_decoding [--positions 2048] [--batches 1 16] [--beams 1 4] [--threads 2] ...
    python -m scripts.bench_decoding --long 16384        # one document, greedy, to this position; no peer

Models have random weights and never write `</s>`, so that every document runs to the last position. Prints tables,
writes OUTPUT/decoding.json and OUTPUT/decoding.png, or with `--long` OUTPUT/decoding_long.*.
"""

from __future__ import annotations

from argparse import BooleanOptionalAction
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
from rich.console import Console

from scaleformer.model.attention import MECHANISMS
from scaleformer.system.allocator import use_huge_pages
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import one_line_errors
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import Natural, NonEmpty, OneOf, Positive, Range, from_mapping
from scripts.arguments import Parser
from scripts.bench_decoding.ctranslate import PACKAGE
from scripts.bench_decoding.report import decoding_tables, draw_curves
from scripts.bench_decoding.steps import Comparison, DecodingCurve, compare, measure_curve
from scripts.bench_decoding.whole import Throughput, measure_throughput
from scripts.bench_training.models import Sizes, add_sizes, with_sizes
from scripts.bench_training.peers import MARIAN, PACKAGES, peer_versions

#: windows of the positions, each timed separately, as a rule and with `long`
WINDOWS, LONG_WINDOWS = 4, 8
#: the comparison with the peer: tokens of the document, the target position up to which it is timed, steps before it,
#: hypotheses, rounds of each system
PEER = {"source": 8192, "position": 2048, "steps": 24, "beams": 4, "rounds": 2}


@dataclass(frozen=True)
class Options:
    """The settings; `python -m scripts.bench_decoding --help` describes them."""

    systems: NonEmpty[Annotated[str, OneOf(MECHANISMS)]]
    sizes: Sizes
    batches: NonEmpty[int]
    beams: NonEmpty[int]
    positions: Annotated[int, Range(ge=9)]  # a token for each window, after as many to warm up
    source: Annotated[int, Range(ge=8)]
    segment: Annotated[int, Range(ge=2)]
    peer: bool
    texts: Natural
    rounds: Positive
    long: Annotated[int, Range(ge=17)] | None
    threads: Positive | None
    seed: int
    output: str


def parse(given: Sequence[str] | None) -> Options:
    """The settings of a command line. Raises ValueError for unknown ones, and for values out of bounds."""
    parser = Parser("python -m scripts.bench_decoding", __doc__)
    names: dict[str, Any] = {"nargs": "*", "metavar": "NAME"}
    parser.add_argument("--systems", default=("scaleformer", "segment_recall"), help="our attentions", **names)
    add_sizes(parser)
    parser.add_argument("--batches", nargs="*", type=int, default=(1, 16), help="documents decoded in parallel")
    parser.add_argument("--beams", nargs="*", type=int, default=(1, 4), help="hypotheses of each document")
    parser.add_argument("--positions", type=int, default=512, help="target tokens of a document")
    parser.add_argument("--source", type=int, default=1024, help="tokens of a document")
    parser.add_argument("--segment", type=int, default=25, help="tokens of a segment, its <sep> included")
    parser.add_argument(
        "--peer", action=BooleanOptionalAction, default=True, help="compare with the peers, if installed"
    )
    texts = "sentences in a batch of whole translations, which also include a document of 54 segments; 0 skips these"
    parser.add_argument("--texts", type=int, default=320, help=texts)
    parser.add_argument("--rounds", type=int, default=3, help="of whole translations, after one warm-up")
    parser.add_argument("--long", type=int, help="instead of all above: one document, greedy, to this position")
    parser.add_argument("--threads", type=int, help="of the CPU; None is torch's default")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights")
    parser.add_argument("--output", default="runs/benchmarks", help="folder of the results and the figure")
    return from_mapping(Options, with_sizes(vars(parser.parse_args(given))), "")


def measure_curves(options: Options, console: Console) -> tuple[list[DecodingCurve], list[Comparison]]:
    """All curves, and the comparison where the peer is enabled and installed."""
    curves = []
    how = options.positions, options.source, options.segment, WINDOWS if options.long is None else LONG_WINDOWS
    for system, batch, beams in product(options.systems, options.batches, options.beams):
        with console.status(f"{system}, batch {batch}, beams {beams}"):
            curves.append(measure_curve(system, options.sizes, batch, beams, *how))
    if not options.peer:
        return curves, []
    if PACKAGES[MARIAN] not in versions():
        print(f"{MARIAN} left out: not installed (pip install -e '.[bench]')")
        return curves, []
    with console.status(f"{PEER['source']} source tokens, with {MARIAN}"):
        return curves, compare(options.systems, options.sizes, segment=options.segment, **PEER)


def measure_whole(options: Options, console: Console) -> list[Throughput]:
    """Whole translations, compared with CTranslate2 where it is enabled and installed."""
    if not options.texts:
        return []
    there = PACKAGE in versions()
    if options.peer and not there:
        print("CTranslate2 left out: not installed (pip install -e '.[bench]')")
    with console.status("whole translations") as status:
        return list(
            measure_throughput(
                options.systems, options.sizes, options.texts, options.segment, options.beams, options.rounds,
                torch.get_num_threads(), options.peer and there, status.update,
            )
        )  # fmt: skip


def versions() -> dict[str, str]:
    """Of the installed peers."""
    return peer_versions([PACKAGES[MARIAN], PACKAGE])


def main(given: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    options = parse(given)
    set_up_cpu(options.threads)
    if options.long is not None:
        options = replace(options, batches=(1,), beams=(1,), texts=0, positions=options.long, peer=False)
    torch.manual_seed(options.seed)
    console = Console()
    curves, comparisons = measure_curves(options, console)
    conditions = provenance("cpu", options.seed)
    conditions["versions"] |= versions()
    result = {
        **conditions,
        "settings": asdict(options),
        "curves": [asdict(curve) | {"speed": curve.speed} for curve in curves],
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "throughput": [asdict(row) for row in measure_whole(options, console)],
    }
    print("\n\n".join(decoding_tables(result)))
    output, name = Path(options.output), "decoding" if options.long is None else "decoding_long"
    draw_curves(result["curves"], output / f"{name}.png")
    written = write_result(output / f"{name}.json", result)
    print(f"{written} and {name}.png")


if __name__ == "__main__":
    use_huge_pages()  # as commands do
    with one_line_errors():
        main()
