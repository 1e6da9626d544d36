"""Time decoding by position, and compare it with `generate` of Hugging Face transformers.

    scaleformer benchmark decoding [positions=2048] [batches=[1,16]] [beams=[1,4]] [threads=2] ...
    scaleformer benchmark decoding long=16384        # one document, greedy, to this position; no peer

Models have random weights and never write `</s>`, so that every document runs to the last position. Prints tables,
writes OUTPUT/decoding.json and OUTPUT/decoding.png, or with `long` OUTPUT/decoding_long.*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console

from scaleformer.benchmarks.ctranslate import CTRANSLATE2
from scaleformer.benchmarks.decoding import Comparison, DecodingCurve, compare, measure_curve
from scaleformer.benchmarks.models import Sizes
from scaleformer.benchmarks.models_report import decoding_tables, draw_curves
from scaleformer.benchmarks.peers import MARIAN, PACKAGES, peer_versions
from scaleformer.benchmarks.throughput import Throughput, measure_throughput
from scaleformer.model.attention import MECHANISMS
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import Natural, NonEmpty, OneOf, Positive, Range

#: windows of the positions, each timed separately, as a rule and with `long`
WINDOWS, LONG_WINDOWS = 4, 8
#: the comparison with the peer: tokens of the document, the target position up to which it is timed, steps before it,
#: hypotheses, rounds of each system
PEER = {"source": 8192, "position": 2048, "steps": 24, "beams": 4, "rounds": 2}


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/benchmark_decoding.yaml describes them."""

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


def measure_curves(options: Options, console: Console) -> tuple[list[DecodingCurve], list[Comparison]]:
    """All curves, and the comparison where the peer is enabled and installed."""
    curves = []
    how = options.positions, options.source, options.segment, WINDOWS if options.long is None else LONG_WINDOWS
    for system, batch, beams in product(options.systems, options.batches, options.beams):
        with console.status(f"{system}, batch {batch}, beams {beams}"):
            curves.append(measure_curve(system, options.sizes, batch, beams, *how))
    if not options.peer:
        return curves, []
    if PACKAGES[MARIAN] not in peer_versions():
        print(f"{MARIAN} left out: not installed (pip install -e '.[bench]')")
        return curves, []
    with console.status(f"{PEER['source']} source tokens, with {MARIAN}"):
        return curves, compare(options.systems, options.sizes, segment=options.segment, **PEER)


def measure_whole(options: Options, console: Console) -> list[Throughput]:
    """Whole translations, compared with CTranslate2 where it is enabled and installed."""
    if not options.texts:
        return []
    there = PACKAGES[CTRANSLATE2] in peer_versions()
    if options.peer and not there:
        print(f"{CTRANSLATE2} left out: not installed (pip install -e '.[bench]')")
    with console.status("whole translations") as status:
        return list(
            measure_throughput(
                options.systems, options.sizes, options.texts, options.segment, options.beams, options.rounds,
                torch.get_num_threads(), options.peer and there, status.update,
            )
        )  # fmt: skip


def main(options: Options, given: Sequence[str]) -> None:
    """Measure, print and write."""
    if options.long is not None:
        options = replace(options, batches=(1,), beams=(1,), texts=0, positions=options.long, peer=False)
    torch.manual_seed(options.seed)
    console = Console()
    curves, comparisons = measure_curves(options, console)
    conditions = provenance("cpu", options.seed)
    conditions["versions"] |= peer_versions()
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
