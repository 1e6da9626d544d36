"""Test whether the saved translations of several runs differ by more than chance: BLEU and chrF++.

scaleformer compare runs=[RUN,RUN] [split=test] [level=document] [metrics=multi30k]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaleformer.evaluation.alignment import RULE
from scaleformer.evaluation.metrics import choose_metrics
from scaleformer.evaluation.saved_translations import (
    lines_of,
    origin,
    read_translations,
    result_of,
    same_documents,
    stem,
    translations_of,
)
from scaleformer.evaluation.significance import compare_systems, comparison_table
from scaleformer.report.names import system_names
from scaleformer.system.display import counted
from scaleformer.system.files import check_file
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import Positive, listed
from scaleformer.system.tables import print_table
from scaleformer.text.documents import Level


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/compare.yaml describes them."""

    runs: str | tuple[str, ...]
    split: str
    level: Level
    metrics: dict[str, Any]
    bootstrap_samples: Positive
    randomization_trials: Positive
    output: str | None


def main(options: Options, given: Sequence[str]) -> None:
    check_file("output", options.output)
    files = [translations_of(str(run), options.split) for run in listed(options.runs)]
    if len(files) < 2:
        raise ValueError(f"{counted(len(files), 'run')} to compare: wanted at least 2, runs=[RUN,RUN]")
    names = system_names(files)
    systems = {name: read_translations(file) for name, file in zip(names, files, strict=True)}
    same_documents(systems)
    lines = {name: lines_of(documents, options.level) for name, documents in systems.items()}
    first = next(iter(lines.values()))
    metrics = choose_metrics(result_of(files[0]), options.metrics, given)
    comparison = compare_systems(
        {name: found.hypotheses for name, found in lines.items()},
        first.references,
        metrics,
        bootstrap_samples=options.bootstrap_samples,
        randomization_trials=options.randomization_trials,
    )
    settings = {"level": options.level, "metrics": asdict(metrics), "alignment": RULE}
    translations = dict(zip(names, map(str, files), strict=True))
    checkpoints = {name: provenance(**origin(file))["checkpoint"] for name, file in zip(names, files, strict=True)}
    path = Path(str(options.output or files[0].with_name(f"compare-{stem(files[0]).removeprefix('bleu-')}.json")))
    systems_of = {"translations": translations, "checkpoints": checkpoints}
    write_result(path, {**provenance(), **settings, **systems_of, **asdict(comparison), "kind": "compare"})
    title = f"{comparison.lines:,} lines, against {comparison.baseline}; * both tests below 0.05"
    print_table(comparison_table(comparison, title))
    for metric, signatures in comparison.signatures.items():
        for signature in signatures.values():
            print(f"{metric}: {signature}")
    print(f"written to {path}")
