"""Train other programs and ours by themselves on one corpus for one time, and score the translations of all alike.

    scaleformer benchmark quality corpus=FOLDER [minutes=60] [recipe=ours] [segments=30] ...

The others are Hugging Face transformers (Marian's architecture, Seq2SeqTrainer), JoeyNMT and eole, each installed by
pip into an environment of its own. All have the same sizes, subwords, threads and time; each translates the test split
by its own search. A row is a program on one level: segments one by one, or documents flattened to pieces of
`max_tokens`. Writes OUTPUT/results/ROW.json and OUTPUT/quality.md; called again, it goes on with the missing rows.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from rich.console import Console

from scaleformer.benchmarks.quality.programs import Failed
from scaleformer.benchmarks.quality.rows import ROWS, Bench, Plan, table
from scaleformer.system.files import atomic_writer
from scaleformer.system.schema import OneOf


@dataclass(frozen=True)
class Options(Plan):
    """The settings; conf/commands/benchmark_quality.yaml describes them."""

    rows: tuple[Annotated[str, OneOf(ROWS)], ...] | None


def main(options: Options, given: Sequence[str]) -> None:
    """Make the rows one after the other; one that fails is reported, and the others continue."""
    console = Console()

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    bench = Bench(Plan(**{field.name: getattr(options, field.name) for field in fields(Plan)}))
    output, failures = Path(options.output), {}
    for name in options.rows or ROWS:
        say(f"{name} ...")
        try:
            say(f"{name}: {'done' if bench.row(name) else 'there already'}")
        except Exception as error:  # whatever it is, the other rows are worth their hours
            if not isinstance(error, Failed):
                traceback.print_exc()
            failures[name] = " ".join(str(error).split()) or type(error).__name__
            say(f"{name}: failed: {failures[name]}")
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((output / "results").glob("*.json"))]
    text = table(results, failures)
    with atomic_writer(output / "quality.md") as file:
        file.write(text)
    say(f"\n{text}\nwritten to {output / 'quality.md'}")
    if failures:
        raise ValueError(f"{len(failures)} of {len(options.rows or ROWS)} rows failed: {', '.join(failures)}")
