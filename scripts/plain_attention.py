"""Time attention as a user of the library meets it: in a process that sets up nothing as the commands do.

    python -m scripts.plain_attention [--cases causal] [--lengths 256 1024] [--threads 2] ...

Settings, and the tables to compare with, are those of `python -m scripts.bench_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import torch

from scaleformer.system.errors import one_line_errors
from scripts.bench_attention.cost import measure_costs
from scripts.bench_attention.options import parse
from scripts.bench_attention.report import attention_tables


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(given, "python -m scripts.plain_attention", __doc__).with_defaults()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    rows = [
        asdict(row)
        for case in options.cases or ()
        for length in options.lengths or ()
        for row in measure_costs(options, length, case)
    ]
    print("\n\n".join(attention_tables({"rows": rows})))


if __name__ == "__main__":
    with one_line_errors():
        main()
