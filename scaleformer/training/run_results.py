"""What a run hands to its loggers when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scaleformer.evaluation.translation_run import Evaluation

SAMPLES = 50


@dataclass(frozen=True)
class RunTable:
    """A table of numbers and texts, which may have several lines."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class RunResults:
    """The learning curves as an image file, None without any; scores and tables by names like test/scores; the step at
    which training ended."""

    curves: Path | None
    scores: Mapping[str, float]
    tables: Mapping[str, RunTable]
    step: int


class ResultsLogger(Protocol):
    """A logger that takes more than curves. title: its display name."""

    title: str

    def begin(self, config: Mapping[str, Any]) -> None:
        """Take the configuration. Raises ValueError where the logger cannot be reached."""

    def finish(self, results: RunResults) -> None:
        """Take the results, and close the logger's run."""


def results_of(evaluations: Mapping[str, Evaluation], curves: Path | None, step: int) -> RunResults:
    """The results of a run; evaluations: by label, the split or CORPUS-SPLIT; may be empty."""
    scores: dict[str, float] = {}
    tables: dict[str, RunTable] = {}
    for label, evaluation in evaluations.items():
        report = evaluation.report
        rows = [[s.metric, s.score, report.documents, s.signature] for s in report.scores]
        samples = [
            [document.id, *("\n".join(text) for text in (document.source, document.target, document.hypothesis))]
            for document in evaluation.documents[:SAMPLES]
        ]
        tables[f"{label}/scores"] = RunTable(["metric", "score", "documents", "signature"], rows)
        tables[f"{label}/samples"] = RunTable(["id", "source", "reference", "hypothesis"], samples)
        scores |= {f"{label}/{s.metric}": s.score for s in report.scores}
    return RunResults(curves, scores, tables, step)
