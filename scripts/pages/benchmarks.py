"""`python -m scripts.pages.benchmarks [FOLDER]` writes docs/benchmarks.md from the results of the benchmarks.

FOLDER, by default runs/benchmarks, has what `python -m scripts.bench_attention`, `bench_training`, `bench_decoding` and
`algorithm_choice` wrote. Its figures are copied beside the page.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from scaleformer.system.errors import one_line_errors
from scaleformer.system.files import atomic_writer
from scripts.algorithm_choice import choice_tables
from scripts.bench_attention.report import attention_tables, device_in_words, long_tables
from scripts.bench_decoding.report import decoding_tables
from scripts.bench_training.report import training_tables
from scripts.bench_training.tables import Result

PAGE = Path(__file__).parents[2] / "docs/benchmarks.md"


class Section(NamedTuple):
    title: str
    tables: Callable[[Result], list[str]]
    words: str


#: result file name -> section
SECTIONS = {
    "attention": Section(
        "Attention alone",
        attention_tables,
        "The operators against torch's fused softmax attention without a relative term. Up to `pair_limit` tokens each "
        "alternates with softmax alone, beyond it all take turns. Cross-attention has a source as long as the target "
        "and no relative positions. Memory is the peak of a call on top of its arguments.",
    ),
    "attention_terms": Section(
        "The two terms of attention alone",
        attention_tables,
        "The relative term S^rel V and the kernel term phi(Q) phi(K)^T V of the paper (its Figures 4 and 5). Ours is "
        "the whole operator each time, with zero keys for the relative term, and includes the division by the sums.",
    ),
    "attention_long": Section(
        "Attention over long documents",
        long_tables,
        "Growth is the slope of the logarithm against that of the length: 1 is linear, 2 quadratic. The memory kept "
        "for the backward pass includes queries, keys, values and output.",
    ),
    "attention_auto": Section(
        "Which algorithm `auto` takes",
        choice_tables,
        "Every algorithm of each mechanism, and how much longer the choice of `algorithm=auto` takes than the best of "
        "them. All scores are left out beyond the length where they took four times as long as the best.",
    ),
    "training": Section(
        "A training step",
        training_tables,
        "Forward, backward, clipping and Adam on whole batches. Tokens count source and target; the share of the peak "
        "counts the products with weight matrices only, for all systems alike: attention, normalisation, dropout, the "
        "loss and the optimizer all lower it. Memory is the peak of torch's allocations in a step, parameters and "
        "optimizer states included.",
    ),
    "decoding": Section(
        "Decoding",
        decoding_tables,
        "Random weights that never write `</s>`: every document runs to the last position. Times are medians over the "
        "steps of each window, search and bookkeeping included; spread is the slowest window over the fastest, minus "
        "1. The peer gets all but the last tokens of the target at once, and only these last ones are timed. Whole "
        "translations include the encoder, with all texts in one batch; CTranslate2 has a softmax transformer of the "
        "same sizes.",
    ),
    "decoding_long": Section(
        "Decoding far",
        decoding_tables,
        "As above, to positions far beyond: the time of a step does not depend on how much is already written.",
    ),
}


def write_page(results: Path, page: Path) -> Path:
    """Write the page of all benchmarks with results in the folder, and their figures next to it.

    Raises ValueError without results, OSError where writing fails.
    """
    parts = [
        "# Benchmarks",
        "Written by `make bench` and other commands: each table names its command, conditions and settings. "
        "Absolute speeds depend on the machine: read the ratios.",
    ]
    found = False
    for name, (title, tables, words) in SECTIONS.items():
        if not (path := results / f"{name}.json").is_file():
            continue
        found = True
        result = json.loads(path.read_text(encoding="utf-8"))
        parts += [f"## {title}", words, *tables(result)]
        parts += result.get("notes", [])
        for figure in (path.with_suffix(".png"), path.with_name(f"{name}-memory.png")):
            if figure.is_file():
                page.parent.mkdir(parents=True, exist_ok=True)
                copy = page.parent / f"{page.stem}-{figure.name}"
                shutil.copyfile(figure, copy)
                parts.append(f"![{title}]({copy.name})")
        parts.append(_conditions(result))
    if not found:
        raise ValueError(
            f"{results}: no benchmark results: run `python -m scripts.bench_training --output {results}` first"
        )
    with atomic_writer(page) as file:
        file.write("\n\n".join(parts) + "\n")
    return page


def _conditions(result: Result) -> str:
    """Command, time, machine, versions and settings as a block of code: values to look up, not to read."""
    versions = ", ".join(
        f"{key} {value}"
        for key, value in result["versions"].items()
        if key in ("python", "torch", "transformers", "joeynmt")
    )
    settings = ", ".join(
        f"{key} {value}"
        for key, value in result["settings"].items()
        if key not in ("output", "page") and value is not None
    )
    lines = [result["command"], f"{result['time']}; {device_in_words(result['device'])}; {versions}"]
    return code_block([*lines, f"Settings: {settings}"])


def code_block(lines: Sequence[str]) -> str:
    """Lines of text as a block of code in Markdown, those that are too long broken between words."""
    broken = [part for line in lines for part in textwrap.wrap(line, 100, break_long_words=False)]
    return "\n".join(["```text", *broken, "```"])


if __name__ == "__main__":
    with one_line_errors():
        print(write_page(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/benchmarks"), PAGE))
