"""The test split at the end of a run, and what the run hands to its loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scaleformer.checkpoints.run_config import target_language, trained_mode
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.evaluation.corpus import ChosenCorpus, training_split
from scaleformer.evaluation.evaluate import evaluate_translator
from scaleformer.evaluation.translation_run import Evaluation
from scaleformer.training.readiness import fingerprints
from scaleformer.training.settings import Settings
from scaleformer.translation.request import Request
from scaleformer.translation.translator import Translator

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


def evaluate_test_split(settings: Settings, directory: Path, data: DocumentDataModule) -> dict[str, Evaluation]:
    """Translate the test documents with the best checkpoint; print samples and the BLEU table, write the results. With
    several corpora, evaluates each one that has the split. The keys are the labels of the results."""
    chosen, found = settings.test, {}
    translator = Translator.load(directory)
    for name, part in (data.parts or {"": data}).items():
        if data.parts and chosen.split not in part.sources:
            print(f"{name}: no {chosen.split!r} split, not evaluated", flush=True)
            continue
        own = ChosenCorpus(part.source(chosen.split), chosen.split, name, tag=part.config.tag)
        documents = part.documents(chosen.split)
        sources, names = [document.source for document in documents], [document.id for document in documents]
        found[own.label] = evaluate_translator(
            translator, documents,
            Request(sources, translator.decoding, names, trained_mode(translator.config), tag=part.config.tag),
            directory / "results", split=chosen.split, corpus=name,
            metrics=settings.metrics.for_language(target_language(part.config)), samples=chosen.samples,
            ter=chosen.ter, training=training_split(translator.config, None),
            conditions={"data": fingerprints(data, settings), "corpus": own.to_dict()},
        )  # fmt: skip
    return found
