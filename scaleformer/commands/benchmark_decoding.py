"""Time decoding by position, and compare it with `generate` of Hugging Face transformers.

    scaleformer benchmark decoding [positions=2048] [batches=[1,16]] [beams=[1,4]] [threads=2] ...
    scaleformer benchmark decoding long=16384        # one document, greedy, to this position; no peer

Models have random weights and never write `</s>`, so that every document runs to the last position. Prints tables,
writes OUTPUT/decoding.json and OUTPUT/decoding.png, or with `long` OUTPUT/decoding_long.*; `page=docs/benchmarks.md`
writes the page of all benchmarks with results in OUTPUT.
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
from scaleformer.benchmarks.page import decoding_tables, draw_curves, write_page
from scaleformer.benchmarks.peers import MARIAN, PACKAGES, peer_versions
from scaleformer.benchmarks.throughput import Throughput, measure_throughput
from scaleformer.model.attention import MECHANISMS
from scaleformer.system.files import check_file
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import Natural, NonEmpty, OneOf, Positive, Range


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/benchmark_decoding.yaml describes them."""

    systems: NonEmpty[Annotated[str, OneOf(MECHANISMS)]]
    sizes: Sizes
    batches: NonEmpty[int]
    beams: NonEmpty[int]
    positions: Annotated[int, Range(ge=8)]
    windows: Positive
    source: Annotated[int, Range(ge=8)]
    segment: Annotated[int, Range(ge=2)]
    peer: bool
    peer_source: int
    peer_position: int
    peer_steps: Positive
    peer_beams: int
    peer_rounds: Positive
    texts: Natural
    rounds: Positive
    long: Annotated[int, Range(ge=8)] | None
    long_windows: Positive
    threads: Positive | None
    seed: int
    output: str
    page: str | None

    def __post_init__(self) -> None:
        """Raises ValueError for settings that cannot be measured."""
        if self.peer_position <= self.peer_steps:
            raise ValueError(f"peer_position is {self.peer_position}: it must be above peer_steps, {self.peer_steps}")


def measure_curves(options: Options, console: Console) -> tuple[list[DecodingCurve], list[Comparison]]:
    """All curves, and the comparison where the peer is enabled and installed."""
    curves = []
    how = options.positions, options.source, options.segment, options.windows
    for system, batch, beams in product(options.systems, options.batches, options.beams):
        with console.status(f"{system}, batch {batch}, beams {beams}"):
            curves.append(measure_curve(system, options.sizes, batch, beams, *how))
    if not options.peer:
        return curves, []
    if PACKAGES[MARIAN] not in peer_versions():
        console.print(f"{MARIAN} left out: not installed (pip install -e '.[bench]')", highlight=False, markup=False)
        return curves, []
    places = options.peer_source, options.peer_position, options.peer_steps
    with console.status(f"{options.peer_source} source tokens, with {MARIAN}"):
        rest = options.peer_beams, options.segment, options.peer_rounds
        return curves, compare(options.systems, options.sizes, *places, *rest)


def measure_whole(options: Options, console: Console) -> list[Throughput]:
    """Whole translations, compared with CTranslate2 where it is enabled and installed."""
    if not options.texts:
        return []
    there = PACKAGES[CTRANSLATE2] in peer_versions()
    if options.peer and not there:
        console.print(
            f"{CTRANSLATE2} left out: not installed (pip install -e '.[bench]')", highlight=False, markup=False
        )
    with console.status("whole translations") as status:
        return list(
            measure_throughput(
                options.systems, options.sizes, options.texts, options.segment, options.beams, options.rounds,
                torch.get_num_threads(), options.peer and there, status.update,
            )
        )  # fmt: skip


def main(options: Options, given: Sequence[str]) -> None:
    """Measure, print and write."""
    check_file("page", options.page)
    if options.long is not None:
        far = {"positions": options.long, "windows": options.long_windows, "peer": False}
        options = replace(options, batches=(1,), beams=(1,), texts=0, **far)  # type: ignore[arg-type]
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
    console.print("\n\n".join(decoding_tables(result)), highlight=False, markup=False, soft_wrap=True)
    output, name = Path(options.output), "decoding" if options.long is None else "decoding_long"
    draw_curves(result["curves"], output / f"{name}.png")
    written = write_result(output / f"{name}.json", result)
    console.print(f"{written} and {name}.png", highlight=False, soft_wrap=True)
    if options.page:
        console.print(f"{write_page(output, Path(options.page))}", highlight=False, soft_wrap=True)
