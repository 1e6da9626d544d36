"""Evaluates a translator on documents: prints a table, and writes the results to files."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from scaleformer.checkpoints.run_config import test_split
from scaleformer.data.sources import SplitSource
from scaleformer.evaluation.corpus import result_label
from scaleformer.evaluation.leaks import seen_and_unseen
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.positions import quality_by_position
from scaleformer.evaluation.samples import format_samples
from scaleformer.evaluation.saved_translations import translated
from scaleformer.evaluation.scores import BleuReport, MetricScore, bleu_report, check_references
from scaleformer.evaluation.suspicions import LOW, suspicions
from scaleformer.evaluation.translation_run import Evaluation, write_evaluation
from scaleformer.system.display import counted, ranged
from scaleformer.system.files import atomic_writer, check_folder
from scaleformer.system.tables import print_table
from scaleformer.text.documents import Document
from scaleformer.translation.request import Request
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.translator import Translator

log = logging.getLogger(__name__)


def evaluate_translator(
    translator: Translator, documents: Sequence[Document], request: Request, folder: str | Path, *, split: str = "test",
    partial: bool = False, corpus: str = "", metrics: Metrics | None = None, samples: int = 5, ter: bool = True,
    show_samples: bool = True, training: SplitSource | None = None, conditions: Mapping[str, Any] | None = None,
) -> Evaluation:  # fmt: skip
    """Translate with a bar on stderr, write results and samples, print samples and table. After an interruption the
    same call continues after the finished documents.

    request     for the sources of the documents
    folder      of the results (`write_evaluation`, as bleu-LABEL); samples go there too, or next to it when it is the
                results/ of a run
    partial     whether these are only the first documents of the split: LABEL ends with -first-N
    corpus      name of a corpus other than the run's own. LABEL is SPLIT, or CORPUS-SPLIT with such a name; samples of
                the run's own test split are samples.txt, others samples-LABEL.txt
    metrics     how texts are compared
    training    the training split, for the scores of segments that stand there and of others
    conditions  more fields for the JSON, such as the corpus
    Raises ValueError without documents or with empty references; OSError where writing fails.
    """
    check_references(documents)  # before hours of translation
    folder = Path(folder)
    chosen = metrics or Metrics()
    label = result_label(corpus, f"{split}-first-{len(documents)}" if partial else split)
    check_folder(folder)
    name = f"bleu-{label}"
    kept = folder / f".{name}.part"
    begun, start = kept.exists(), time.perf_counter()
    with resumable_translations(translator, request, kept, counted(len(documents), "document")) as translations:
        seconds = None if begun else time.perf_counter() - start
        found = translated(documents, translations)
        evaluation = Evaluation(found, bleu_report(found, chosen, ter=ter), request, seconds)
        extra = {"split": split, "partial": partial, "metrics": asdict(chosen), **(conditions or {})}
        extra["positions"] = quality_by_position(evaluation.documents, chosen)
        extra["leaks"] = None
        if training is not None:
            try:
                extra["leaks"] = seen_and_unseen(found, training, chosen)
            except (ValueError, OSError) as error:
                log.warning("segments of the training split are not told from others: %s", error)
        path = write_evaluation(folder, name, evaluation, translator, extra)
    chosen_samples = evaluation.documents[:samples]
    samples_file = "samples.txt" if label == test_split(translator.config) else f"samples-{label}.txt"
    samples_path = (folder.parent if folder.name == "results" else folder) / samples_file
    with atomic_writer(samples_path) as file:
        file.write(format_samples(chosen_samples))
    if show_samples:
        print(format_samples(chosen_samples, max_segments=3))
    print_report(evaluation.report, f"{label}: {counted(len(documents), 'document')}", extra["leaks"])
    print_positions(extra["positions"])
    if evaluation.report.score("s-BLEU").score < LOW:
        for line in suspicions(evaluation.documents):
            log.warning("%s", line)
    print(f"written to {path}, samples to {samples_path}")
    return evaluation


def print_report(report: BleuReport, title: str, leaks: Mapping[str, Any] | None = None) -> None:
    """Print the table of scores (with those of `seen_and_unseen`), the signatures below it, and notes on the
    documents."""
    table = Table(title=Text(title, "table.title"), title_justify="left")
    table.add_column("metric")
    table.add_column("score", justify="right")
    table.add_column("documents", justify="right")
    table.add_column("details")
    for score in report.scores:
        table.add_row(score.metric, f"{score.score:.2f}", str(report.documents), _details(score))
    for name, score in report.parts.items():
        count = str(report.part_documents[name])
        table.add_row(Text(f"  {score.metric} of {name}"), f"{score.score:.2f}", count, _details(score))
    for name, row in ((name, leaks[name]) for name in ("seen", "unseen")) if leaks else ():
        for metric, key in (("s-BLEU", "s_bleu"), ("chrF++", "chrf")):
            shown = "" if row[key] is None else f"{row[key]:.2f}"
            share = f"{counted(row['segments'], 'segment')} {'not ' * (name == 'unseen')}in the training split"
            table.add_row(f"  {metric} of {name}", shown, str(row["documents"]), share)
    print_table(table)
    for score in report.scores:
        print(f"{score.metric}: {score.signature}")
    print(
        f"segments: {report.hypothesis_segments} of {report.reference_segments}; segment count differs from the "
        f"reference in {report.count_mismatches} of {report.documents} documents ({report.mismatch_rate:.1%})"
    )
    if report.unfinished:
        shown = ", ".join(report.unfinished[:5]) + (" ..." if len(report.unfinished) > 5 else "")
        segments = f"{counted(report.cut_segments, 'segment')} in " if report.cut_segments else ""
        of = f"{len(report.unfinished)} of {report.documents} documents"
        print(f"cut at the length limit: {segments}{of}: {shown}")


def print_positions(positions: Mapping[str, Any]) -> None:
    """s-BLEU by the tenth of the document and by its number of segments, a line each; omitted for a single group."""
    if positions["tenths"]:
        scores = " ".join(f"{row['s_bleu']:.1f}" for row in positions["tenths"])
        left_out = f", {counted(positions['shorter'], 'shorter one')} excluded" if positions["shorter"] else ""
        documents = counted(positions["tenths_of"], "document")
        print(f"s-BLEU by tenth of the document: {scores} ({documents}{left_out})")
    if len(positions["lengths"]) > 1:
        scores = ", ".join(f"{ranged(row['from'], row['to'])}: {row['s_bleu']:.1f}" for row in positions["lengths"])
        print(f"s-BLEU by segments of the document: {scores}")


def _details(score: MetricScore) -> str:
    if not score.details:
        return "lower is better" if score.metric == "TER" else ""
    precisions = "/".join(f"{p:.1f}" for p in score.details["precisions"])
    penalty, ratio = score.details["brevity_penalty"], score.details["length_ratio"]
    return f"{precisions} BP {penalty:.3f} ratio {ratio:.3f}"
