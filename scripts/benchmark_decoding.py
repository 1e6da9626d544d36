"""Time decoding against the position, and beside `generate` of Hugging Face transformers.

    python scripts/benchmark_decoding.py [positions=2048] [batches=[1,16]] [beams=[1,4]] [threads=2] ...
    python scripts/benchmark_decoding.py long=16384        # one document, greedily, to so many positions; no peer

Models have random weights and never write `</s>`, so that every document runs to the last position. Prints tables,
writes OUTPUT/decoding.json and OUTPUT/decoding.png, or with `long` OUTPUT/decoding_long.*; `page=docs/benchmarks.md`
writes the page of all benchmarks whose results are in OUTPUT.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from omegaconf import OmegaConf
from rich.console import Console

from scaleformer.benchmarks.decoding import Comparison, Curve, compare, measure_curve
from scaleformer.benchmarks.models import Sizes
from scaleformer.benchmarks.page import decoding_tables, draw_curves, write_page
from scaleformer.benchmarks.peers import MARIAN, PACKAGES, peer_versions
from scaleformer.model.attention import MECHANISMS
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import answer_help, one_line_errors
from scaleformer.system.provenance import provenance, write_result


@dataclass
class Options:
    """The settings, each `key=value` on the command line."""

    systems: list[str] = field(default_factory=lambda: ["scaleformer", "segment_recall"])  # attentions of ours
    sizes: Sizes = field(default_factory=Sizes)
    batches: list[int] = field(default_factory=lambda: [1, 16])
    beams: list[int] = field(default_factory=lambda: [1, 4])
    positions: int = 512  # target tokens
    windows: int = 4  # the positions from the 100th on are cut into so many
    source: int = 1024  # tokens of a document
    segment: int = 25  # tokens of a segment, its <sep> included
    peer: bool = True  # compare with the peer, where it is installed
    peer_source: int = 8192
    peer_position: int = 2048
    peer_steps: int = 24  # timed, up to the position
    peer_beams: int = 4
    peer_rounds: int = 2
    long: int | None = None  # instead of all that: one document, greedily, so many positions
    long_windows: int = 8
    threads: int | None = None  # of the CPU; None for as many as torch takes
    seed: int = 0
    output: str = "runs/benchmarks"
    page: str | None = None


def read_options(arguments: list[str] | None = None) -> Options:
    """The options of a command line. Raises errors of OmegaConf for unknown keys and values of another type."""
    options = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Options), OmegaConf.from_cli(arguments)))
    assert isinstance(options, Options)
    for name in ("systems", "batches", "beams"):
        if not getattr(options, name):
            raise ValueError(f"{name}=[]: give at least one")
    unknown = sorted(set(options.systems) - set(MECHANISMS))
    if unknown:
        raise ValueError(f"systems names {', '.join(unknown)}: choose of {', '.join(MECHANISMS)}")
    least = {"positions": 8, "windows": 1, "source": 8, "segment": 2, "peer_steps": 1, "peer_rounds": 1}
    for name, minimum in (least | {"long": 8, "long_windows": 1}).items():
        if (value := getattr(options, name)) is not None and value < minimum:
            raise ValueError(f"{name}={value}: wanted at least {minimum}")
    if options.peer_position <= options.peer_steps:
        raise ValueError(f"peer_position={options.peer_position}: wanted more than peer_steps={options.peer_steps}")
    if options.long is not None:
        far = {"positions": options.long, "windows": options.long_windows, "peer": False}
        return replace(options, batches=[1], beams=[1], **far)  # type: ignore[arg-type]
    return options


def measure(options: Options, console: Console) -> tuple[list[Curve], list[Comparison]]:
    """All curves, and the comparison where the peer is wanted and installed."""
    curves = []
    for system in options.systems:
        for batch in options.batches:
            for beams in options.beams:
                with console.status(f"{system}, batch {batch}, beams {beams}"):
                    curves.append(
                        measure_curve(
                            system,
                            options.sizes,
                            batch,
                            beams,
                            options.positions,
                            options.source,
                            options.segment,
                            options.windows,
                        )
                    )
    if not options.peer:
        return curves, []
    if PACKAGES[MARIAN] not in peer_versions():
        console.print(f"{MARIAN} left out: not installed (pip install -e '.[bench]')", highlight=False)
        return curves, []
    with console.status(f"{options.peer_source} source tokens, beside {MARIAN}"):
        comparisons = compare(
            options.systems,
            options.sizes,
            options.peer_source,
            options.peer_position,
            options.peer_steps,
            options.peer_beams,
            options.segment,
            options.peer_rounds,
        )
    return curves, comparisons


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    answer_help(arguments, __doc__, Options)
    options = read_options(arguments)
    set_up_cpu(options.threads)
    torch.manual_seed(options.seed)
    console = Console()
    curves, comparisons = measure(options, console)
    conditions = provenance("cpu", options.seed)
    conditions["versions"] |= peer_versions()
    result = {
        **conditions,
        "settings": asdict(options),
        "curves": [asdict(curve) | {"speed": curve.speed} for curve in curves],
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }
    console.print("\n\n".join(decoding_tables(result)), highlight=False, markup=False, soft_wrap=True)
    output, name = Path(options.output), "decoding" if options.long is None else "decoding_long"
    draw_curves(result["curves"], output / f"{name}.png")
    written = write_result(output / f"{name}.json", result)
    console.print(f"{written} and {name}.png beside it", highlight=False, soft_wrap=True)
    if options.page:
        console.print(f"{write_page(output, Path(options.page))}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
