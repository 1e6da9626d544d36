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

from scaleformer.evaluation.alignment import RULE, align_segments
from scaleformer.evaluation.metrics import Metrics
from scaleformer.text.documents import one_line

JOINING = (
    "d-BLEU, d-chrF++: the segments of a document joined by one space, line breaks in them made spaces, empty ones "
    "left out, a document a line; the others: a segment a line"
)


@dataclass(frozen=True)
class TranslatedDocument:
    """A document to score. finished is False if the hypothesis was cut at the length limit, in `cut` segments."""

    id: str
    reference: Sequence[str]
    hypothesis: Sequence[str]
    finished: bool = True
    cut: int = 0


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


def evaluate_documents(
    documents: Sequence[TranslatedDocument], metrics: Metrics | None = None, ter: bool = True
) -> BleuReport:
    """Score documents. ter=False skips TER, which takes about 20 ms per segment, a hundred times all others together.

    Raises ValueError without documents, where a reference has no segments, or where no reference has text. Warns of
    documents with an empty reference, and of an unsuitable tokenizer (`Metrics.check`).
    """
    metrics = metrics or Metrics()
    if not documents:
        raise ValueError("there are no documents to score")
    for document in documents:
        if not document.reference:
            raise ValueError(f"document {document.id!r} has no reference to score against")
    lines = [one_line(d.hypothesis) for d in documents]
    reference_lines = [one_line(d.reference) for d in documents]
    metrics.check(reference_lines)
    if empty := [d.id for d, line in zip(documents, reference_lines, strict=True) if not line.strip()]:
        warnings.warn(
            f"{len(empty)} of {len(documents)} references are empty, so every translation of them counts as wrong: "
            f"{', '.join(empty[:5])}{' ...' if len(empty) > 5 else ''}",
            stacklevel=2,
        )
    segments = [_line(s) for d in documents for s in align_segments(d.hypothesis, d.reference)]
    reference_segments = [_line(s) for d in documents for s in d.reference]
    scores = [
        _score("d-BLEU", metrics.bleu(), lines, reference_lines),
        _score("s-BLEU", metrics.bleu(), segments, reference_segments),
        _score("chrF++", metrics.chrf(), segments, reference_segments),
        _score("d-chrF++", metrics.chrf(), lines, reference_lines),
    ]
    if ter:
        scores.append(_score("TER", metrics.ter(), segments, reference_segments))
    groups: dict[str, list[int]] = {}
    for place, document in enumerate(documents):
        groups.setdefault(document.id.split("/")[0] if "/" in document.id else "", []).append(place)
    if len(groups) == 1:
        groups = {}
    return BleuReport(
        documents=len(documents),
        reference_segments=len(reference_segments),
        hypothesis_segments=sum(len(d.hypothesis) for d in documents),
        count_mismatches=sum(len(d.hypothesis) != len(d.reference) for d in documents),
        unfinished=tuple(d.id for d in documents if not d.finished),
        cut_segments=sum(d.cut for d in documents),
        scores=tuple(scores),
        parts={
            name or "(no prefix)": _score(
                "d-BLEU", metrics.bleu(), [lines[i] for i in at], [reference_lines[i] for i in at]
            )
            for name, at in groups.items()
        },
        part_documents={name or "(no prefix)": len(at) for name, at in groups.items()},
    )


def _line(segment: str) -> str:
    return one_line([segment])


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
