"""Look at a corpus before training: duplicates, leaks between splits, languages, misaligned places, what filters take.

scaleformer inspect data.path=FOLDER [output=DIR]
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.data.quality import near
from scaleformer.data.quality.config import FilterConfig
from scaleformer.data.quality.inspection import inspect_corpus, quality_page, tables
from scaleformer.system.files import atomic_writer, check_folder
from scaleformer.system.schema import Natural, Positive, from_mapping
from scaleformer.system.tables import print_table


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/inspect.yaml describes them."""

    output: str | None
    examples: Natural
    num_proc: Positive
    seed: Natural
    filters: FilterConfig
    data: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    """Read, print the tables, and write report.html and report.json."""
    if options.output is not None:
        check_folder(options.output)
    data = from_mapping(DataConfig, options.data, "data")
    corpora = {os.path.realpath(one.path) for one in (data, *data.parts.values()) if one.path is not None}
    if options.output is not None and os.path.realpath(options.output) in corpora:
        raise ValueError(f"output={options.output}: is the corpus, which has a report.json of its own: choose another")
    if near.rensa is None:
        print(near.INSTALL)
    result, examples = inspect_corpus(data, options.filters, options.examples, options.num_proc)
    for table in tables(result):
        print_table(table)
    if options.output is not None:
        folder = Path(options.output)
        with atomic_writer(folder / "report.json") as file:
            file.write(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        with atomic_writer(folder / "report.html") as file:
            file.write(quality_page(result, examples))
        print(f"written to {folder / 'report.html'}")
