"""Time the attention of this package against softmax attention, explicit scores and the paper's own algorithms.

    python -m scripts.bench_attention [--lengths 256 1024 4096] [--threads 2] [--dtype bfloat16] ...
    python -m scripts.bench_attention --part long       # growth of time and memory up to 128k tokens; some minutes
    python -m scripts.bench_attention --part terms      # [Scaleformer] Figures 4 and 5: its two terms alone

The peer is torch's fused softmax attention, without relative positions. Up to `--pair-limit` tokens each system
alternates with the peer alone (a call of a millisecond depends on what the call before left in the caches); beyond, all
take turns, in one process. Times are medians of at least `--repeats` calls after one warm-up, with memory kept by the C
library, as in training. Cross-attention has a source as long as the target, and no relative positions. Prints tables
and writes OUTPUT/attention.json, or OUTPUT/attention_PART.json, with its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from scaleformer.system.allocator import use_huge_pages
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import one_line_errors
from scaleformer.system.provenance import provenance, write_result
from scripts.bench_attention.cost import AttentionCost, measure_costs, slopes
from scripts.bench_attention.options import SLOPE_FROM, Options, parse
from scripts.bench_attention.report import attention_tables, device_in_words, draw, long_tables


def compare(options: Options) -> Iterator[dict[str, Any]]:
    """What is measured so far, after each length."""
    rows: list[AttentionCost] = []
    with Console().status("") as status:
        for case in options.cases or ():
            for length in sorted(options.lengths or ()):
                if case == "cross" and length > options.cross_limit:
                    continue
                status.update(f"{length} tokens, {case}")
                rows += measure_costs(options, length, case)
                yield {
                    "slope_from": SLOPE_FROM,
                    "slopes": slopes(rows),
                    "memory_slopes": slopes(rows, "memory"),
                    "rows": [asdict(row) for row in rows],
                }


def main(given: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    options = parse(given, "python -m scripts.bench_attention", __doc__).with_defaults()
    set_up_cpu(options.threads)
    conditions = provenance("cpu", options.seed)
    name = "attention" if options.part == "compare" else f"attention_{options.part}"
    output = Path(options.output)
    result: dict[str, Any] = {}
    for found in compare(options):
        result = {**conditions, "settings": asdict(options), **found}
        write_result(output / f"{name}.json", result)  # nothing measured is lost where the run is stopped
    print("\n\n".join((long_tables if options.part == "long" else attention_tables)(result)))
    words = device_in_words(conditions["device"])
    words += f", {options.dtype}, batch {options.batch}, {options.heads} heads of {options.width}, R={options.horizon}"
    draw(result["rows"], output / f"{name}.png", words)
    if options.memory:
        draw(result["rows"], output / f"{name}-memory.png", words, "memory")
    print(f"{words}\n{output / name}.json and {name}.png")


if __name__ == "__main__":
    use_huge_pages()  # as commands do
    with one_line_errors():
        main()
