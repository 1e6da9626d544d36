"""What the loggers of a run are given at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scaleformer.evaluation.translation_run import Evaluation

SAMPLES = 50


@dataclass(frozen=True)
class RunTable:
    """A table of texts, which may have several lines, and numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class RunResults:
    """The learning curves as a picture, None where there are none; scores and tables by names like test/scores; the
    step at which the training ended."""

    curves: Path | None
    scores: Mapping[str, float]
    tables: Mapping[str, RunTable]
    step: int


class ResultsLogger(Protocol):
    """A logger that takes more than curves. title: what its users call it."""

    title: str

    def begin(self, config: Mapping[str, Any]) -> None:
        """Take the configuration. ValueError where the place to write to cannot be reached."""

    def finish(self, results: RunResults) -> None:
        """Take the results, and end the run there."""


def results_of(evaluation: Evaluation | None, split: str, curves: Path | None, step: int) -> RunResults:
    """The results of a run; evaluation: None where it was not evaluated."""
    if evaluation is None:
        return RunResults(curves, {}, {}, step)
    report = evaluation.report
    scores = [[s.metric, s.score, report.documents, s.signature] for s in report.scores]
    samples = [
        [sample.id, *("\n".join(text) for text in (sample.source, sample.reference, sample.hypothesis))]
        for sample in evaluation.samples(SAMPLES)
    ]
    tables = {
        f"{split}/scores": RunTable(["metric", "score", "documents", "signature"], scores),
        f"{split}/samples": RunTable(["id", "source", "reference", "hypothesis"], samples),
    }
    return RunResults(curves, {f"{split}/{s.metric}": s.score for s in report.scores}, tables, step)
