"""Time the attention of this package against softmax attention, all scores and the paper's own algorithms.

    python scripts/benchmark_attention.py [lengths=[256,1024,4096]] [threads=2] [device=cuda] [dtype=bfloat16] ...
    python scripts/benchmark_attention.py part=long       # growth of time and memory up to 128k tokens; some minutes
    python scripts/benchmark_attention.py part=auto       # what algorithm=auto takes, beside every algorithm
    python scripts/benchmark_attention.py part=terms      # [Scaleformer] Figures 4 and 5: its two terms alone

The peer is torch's fused softmax attention, without relative positions. Up to `pair_limit` tokens each system takes
turns with it alone (a call of a millisecond feels what the one before it left in the caches), beyond it all take turns,
in one process; times are medians of at least `repeats` calls after one to warm up, with memory that the C library
keeps, as it does in a training. Cross-attention has a source as long as the target, and no relative positions. Prints
tables and writes OUTPUT/attention.json, or OUTPUT/attention_PART.json, with its figures; `page=docs/benchmarks.md`
writes the page of all benchmarks whose results are in OUTPUT.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from rich.console import Console

from scaleformer.benchmarks.attention import (
    CASES,
    CLOCKS,
    DEFAULTS,
    MECHANISMS,
    SLOPE_FROM,
    Options,
    measure,
    slopes,
)
from scaleformer.benchmarks.attention_choice import measure_choices, worst
from scaleformer.benchmarks.attention_report import draw, draw_choices
from scaleformer.benchmarks.page import SECTIONS, write_page
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import answer_help, one_line_errors
from scaleformer.system.provenance import device_in_words, provenance, write_result


def read_options(arguments: list[str] | None = None) -> Options:
    """The options of a command line. Raises errors of OmegaConf for unknown keys and values of another type."""
    given = OmegaConf.from_cli(arguments)
    options = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Options), given))
    assert isinstance(options, Options)
    if options.part not in DEFAULTS:
        raise ValueError(f"part is {options.part!r}: choose one of {', '.join(DEFAULTS)}")
    missing = {name: value for name, value in DEFAULTS[options.part].items() if getattr(options, name) is None}
    options = replace(options, **missing)
    if not options.lengths or min(options.lengths) < 1:
        raise ValueError(f"lengths is {options.lengths}: give at least one, each at least 1")
    unknown = sorted(set(options.cases or ()) - set(CASES))
    if unknown or not options.cases:
        raise ValueError(f"cases is {options.cases}: choose of {'; '.join(CASES)}")
    strange = sorted(set(options.mechanisms) - set(MECHANISMS))
    if strange or not options.mechanisms:
        raise ValueError(f"mechanisms is {options.mechanisms}: choose of {', '.join(MECHANISMS)}")
    if options.part == "auto" and not options.segments:
        raise ValueError("segments is []: part=auto takes the first, give one")
    if options.clock not in CLOCKS:
        raise ValueError(f"clock is {options.clock!r}: choose one of {', '.join(CLOCKS)}")
    if not isinstance(getattr(torch, options.dtype, None), torch.dtype):
        raise ValueError(f"dtype is {options.dtype!r}: give the name of a torch type, such as float32 or bfloat16")
    return options


def compare(options: Options, console: Console) -> dict[str, Any]:
    rows = []
    with console.status("") as status:
        for case in options.cases or ():
            for length in sorted(options.lengths or ()):
                if case != "cross" or length <= options.cross_limit:
                    status.update(f"{length} tokens, {case}")
                    rows += measure(options, length, case)
    return {
        "slope_from": SLOPE_FROM,
        "slopes": slopes(rows),
        "memory_slopes": slopes(rows, "memory"),
        "rows": [asdict(row) for row in rows],
    }


def choose(options: Options, console: Console) -> dict[str, Any]:
    with console.status("") as status:
        rows = measure_choices(options, status.update)
    return {"worst": worst(rows), "rows": [asdict(row) for row in rows]}


@one_line_errors()
def main(arguments: list[str] | None = None) -> None:
    answer_help(arguments, __doc__, Options)
    options = read_options(arguments)
    set_up_cpu(options.threads)
    console = Console()
    found = (choose if options.part == "auto" else compare)(options, console)
    conditions = provenance(options.device, options.seed)
    result = {**conditions, "settings": asdict(options), **found}
    name = "attention" if options.part == "compare" else f"attention_{options.part}"
    text = "\n\n".join(SECTIONS[name].tables(result))
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    output = Path(options.output)
    words = device_in_words(conditions["device"])
    words += f", {options.dtype}, batch {options.batch}, {options.heads} heads of {options.width}, R={options.horizon}"
    if options.part == "auto":
        draw_choices(result["rows"], output / f"{name}.png", words)
    else:
        draw(result["rows"], output / f"{name}.png", words)
    if options.memory and options.part != "auto":
        draw(result["rows"], output / f"{name}-memory.png", words, "memory")
    written = write_result(output / f"{name}.json", result)
    console.print(f"{words}\n{written} and {name}.png beside it", highlight=False, soft_wrap=True)
    if options.page:
        console.print(f"{write_page(output, Path(options.page))}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
