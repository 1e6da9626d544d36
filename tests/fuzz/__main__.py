"""Feed hostile input to the readers, the tokenizer, the configuration and the translator, and see what they do.

    python -m tests.fuzz inputs=100000 [seed=1] [kinds=jsonl,po] [only=NUMBER] [seconds=60]

Wanted of every input: the right answer (that of a slow reader, or the text back) or a ValueError of one line; never
another exception, more than `seconds`, or a file outside the output folder. Input n is a function of (seed, n):
`only=n` repeats it with its traceback. Prints what was found and exits with 1 if anything was.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.checks import time_limit
from tests.fuzz.inputs import Rng
from tests.fuzz.models import configuration, tokenizer, translate
from tests.fuzz.readers import bitext, gz, jsonl, po, preparation, prose, text_pair, translate_input, tsv

KINDS: dict[str, tuple[Callable[[Rng, Path], None], float]] = {
    "jsonl": (jsonl, 25),
    "gz": (gz, 12),
    "text": (text_pair, 14),
    "tsv": (tsv, 10),
    "po": (po, 14),
    "bitext": (bitext, 14),
    "prose": (prose, 4),
    "tokenizer": (tokenizer, 8),
    "translate_input": (translate_input, 10),
    "configuration": (configuration, 5),
    "preparation": (preparation, 1.5),
    "translate": (translate, 0.5),
}


def fuzz(
    inputs: int, folder: Path, seed: int = 1, kinds: str = ",".join(KINDS), seconds: float = 60, only: int | None = None
) -> tuple[Counter[str], list[str]]:
    """Inputs by kind, and what was found wrong, a line each. `folder` is for files, and is left empty."""
    chosen = kinds.split(",")
    if unknown := [kind for kind in chosen if kind not in KINDS]:
        raise ValueError(f"kinds={unknown[0]}: there are {', '.join(KINDS)}")
    counts: Counter[str] = Counter()
    findings: list[str] = []
    for number in [only] if only is not None else range(inputs):
        rng = random.Random(f"{seed} {number}")
        kind = rng.choices(chosen, [KINDS[name][1] for name in chosen])[0]
        counts[kind] += 1
        try:
            with time_limit(seconds):
                KINDS[kind][0](rng, folder)
        except Exception as error:
            findings.append(f"input {number} ({kind}): {type(error).__name__}: {' '.join(str(error).split())[:500]}")
            if only is not None:
                traceback.print_exc()
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if sys.stderr.isatty() and number % 500 == 0:
            print(f"\r{number:,} of {inputs:,}, {len(findings)} findings", end="", file=sys.stderr)
    return counts, findings


def main(arguments: list[str]) -> int:
    known: dict[str, Callable[[str], Any]] = {"inputs": int, "seed": int, "kinds": str, "only": int, "seconds": float}
    try:
        settings = dict(argument.split("=", 1) for argument in arguments)
        values = {key: known[key](value) for key, value in settings.items()}
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            counts, findings = fuzz(folder=Path(folder), **{"inputs": 100_000, **values})
    except (ValueError, KeyError) as error:
        print(f"error: {error}: wanted {', '.join(f'{key}=...' for key in known)}", file=sys.stderr)
        return 1
    for line in findings[:50]:
        print(line)
    by_kind = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    seconds = time.perf_counter() - start
    print(f"{sum(counts.values()):,} inputs in {seconds:.0f} s ({by_kind}): {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    logging.getLogger("scaleformer").setLevel(logging.ERROR)  # warnings of the length limit
    sys.exit(main(sys.argv[1:]))
