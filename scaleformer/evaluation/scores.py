"""BLEU, chrF++ and TER of translated documents, from sacrebleu's own classes, each score with its signature.

d-BLEU [Liu 2020, mBART] and d-chrF++ join the segments of a document into one line; s-BLEU, chrF++ and TER compare
segments.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

from scaleformer.evaluation.alignment import RULE
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.saved_translations import TranslatedDocument, lines_of
from scaleformer.text.documents import Document

JOINING = (
    "d-BLEU, d-chrF++: the segments of a document joined by one space, line breaks in them made spaces, empty ones "
    "left out, a document a line; the others: a segment a line"
)


@dataclass(frozen=True)
class MetricScore:
    """score and signature as sacrebleu gives them (with `tok:` for chrF++ and TER, see `metrics.Metrics`), on its scale
    of 0 to 100 (TER may exceed it); for BLEU also precisions (percent), brevity_penalty, length_ratio (hypothesis /
    reference), hypothesis_length and reference_length (tokens of its tokenizer)."""

    metric: str
    score: float
    signature: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BleuReport:
    """All scores of a set of documents; `parts` has d-BLEU by the prefix of the id before "/", if there are several."""

    documents: int
    reference_segments: int
    hypothesis_segments: int
    count_mismatches: int
    unfinished: tuple[str, ...]
    cut_segments: int
    scores: tuple[MetricScore, ...]
    parts: dict[str, MetricScore]
    part_documents: dict[str, int]
    alignment: str = RULE
    joining: str = JOINING

    @property
    def mismatch_rate(self) -> float:
        """Share of the documents whose segment count differs from the reference."""
        return self.count_mismatches / self.documents

    def score(self, metric: str) -> MetricScore:
        """The score named "d-BLEU", "s-BLEU", "chrF++", "d-chrF++" or "TER"."""
        return next(score for score in self.scores if score.metric == metric)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "mismatch_rate": self.mismatch_rate}


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], metrics: Metrics | None = None) -> float:
    """BLEU (0 to 100) of lines against one reference each. ValueError without lines, or where counts differ."""
    return _score("BLEU", (metrics or Metrics()).bleu(), hypotheses, references).score


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str], metrics: Metrics | None = None) -> float:
    """chrF++ (0 to 100) of lines against one reference each. ValueError without lines, or where counts differ."""
    return _score("chrF++", (metrics or Metrics()).chrf(), hypotheses, references).score


def check_references(documents: Sequence[Document | TranslatedDocument]) -> None:
    """Raises ValueError without documents, where a reference has no segments, or where no reference has text."""
    if not documents:
        raise ValueError("there are no documents to score")
    for document in documents:
        if not document.target:
            raise ValueError(f"document {document.id!r} has no reference to score against")
    if not any(line.strip() for document in documents for line in document.target):
        raise ValueError("the references are empty: there is nothing to score against")


def bleu_report(
    documents: Sequence[TranslatedDocument], metrics: Metrics | None = None, ter: bool = True
) -> BleuReport:
    """Score documents. ter=False skips TER, which takes about 20 ms per segment, a hundred times all others together.
    Raises ValueError as `check_references`. Warns of documents with an empty reference, and of an unsuitable tokenizer
    (`Metrics.check`)."""
    metrics = metrics or Metrics()
    check_references(documents)
    whole, segments = lines_of(documents, "document"), lines_of(documents)
    metrics.check(whole.references)
    if empty := [d.id for d, line in zip(documents, whole.references, strict=True) if not line.strip()]:
        warnings.warn(
            f"{len(empty)} of {len(documents)} references are empty, so every translation of them counts as wrong: "
            f"{', '.join(empty[:5])}{' ...' if len(empty) > 5 else ''}",
            stacklevel=2,
        )
    scores = [
        _score("d-BLEU", metrics.bleu(), whole.hypotheses, whole.references),
        _score("s-BLEU", metrics.bleu(), segments.hypotheses, segments.references),
        _score("chrF++", metrics.chrf(), segments.hypotheses, segments.references),
        _score("d-chrF++", metrics.chrf(), whole.hypotheses, whole.references),
    ]
    if ter:
        scores.append(_score("TER", metrics.ter(), segments.hypotheses, segments.references))
    groups: dict[str, list[TranslatedDocument]] = {}
    for document in documents:
        prefix, slash, _ = document.id.partition("/")
        groups.setdefault(prefix if slash and prefix else "(no prefix)", []).append(document)
    if len(groups) == 1:
        groups = {}
    parts = {name: lines_of(own, "document") for name, own in groups.items()}
    return BleuReport(
        documents=len(documents),
        reference_segments=len(segments.references),
        hypothesis_segments=sum(len(d.hypothesis) for d in documents),
        count_mismatches=sum(len(d.hypothesis) != len(d.target) for d in documents),
        unfinished=tuple(d.id for d in documents if not d.finished),
        cut_segments=sum(len(d.cut) for d in documents),
        scores=tuple(scores),
        parts={n: _score("d-BLEU", metrics.bleu(), own.hypotheses, own.references) for n, own in parts.items()},
        part_documents={name: len(own) for name, own in groups.items()},
    )


def _score(name: str, metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
    if not hypotheses or len(hypotheses) != len(references):
        raise ValueError(
            f"{name}: {len(hypotheses)} hypotheses, {len(references)} references: wanted equal counts of 1 or more"
        )
    result = metric.corpus_score(list(hypotheses), [list(references)])
    details: dict[str, Any] = {}
    if isinstance(metric, BLEU):
        details = {
            "precisions": result.precisions,
            "brevity_penalty": result.bp,
            "length_ratio": result.ratio,
            "hypothesis_length": result.sys_len,
            "reference_length": result.ref_len,
        }
    return MetricScore(name, float(result.score), str(metric.get_signature()), details)
