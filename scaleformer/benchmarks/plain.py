"""The attention benchmark as a library user meets it: in a process that calls nothing but the attention."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import torch

from scaleformer.benchmarks.attention import AttentionCost, measure_costs
from scaleformer.benchmarks.attention_options import Options
from scaleformer.system.schema import from_mapping

# Environment that the commands set before importing torch and oneDNN.
OF_COMMANDS = ("THP_MEM_ALLOC_ENABLE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def plain_rows(options: Options, length: int, case: str) -> list[AttentionCost]:
    """The rows of `measure`, from a separate process; ", plain Python" is appended to the name of each system.

    Raises RuntimeError with the last line of its error.
    """
    environment = {name: value for name, value in os.environ.items() if name not in OF_COMMANDS}
    run = subprocess.run(
        [sys.executable, "-m", "scaleformer.benchmarks.plain"],
        input=json.dumps({"options": asdict(options), "length": length, "case": case}),
        capture_output=True,
        text=True,
        env=environment,
    )
    if run.returncode:
        raise RuntimeError(f"{case}, {length} tokens: {run.stderr.strip().splitlines()[-1]}")
    rows = [from_mapping(AttentionCost, row, "") for row in json.loads(run.stdout)]
    return [replace(row, system=f"{row.system}, plain Python") for row in rows]


def main() -> None:
    """Run the measurement given on stdin and print its rows."""
    request = json.load(sys.stdin)
    options = from_mapping(Options, request["options"], "")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    json.dump([asdict(row) for row in measure_costs(options, request["length"], request["case"])], sys.stdout)


if __name__ == "__main__":
    main()
