"""Quality by position in the document and by document length [Peng 2024, arXiv 2412.17592]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.scores import TranslatedDocument
from scaleformer.text.documents import one_line

TENTHS = 10
LENGTHS = ((1, 3), (4, 9), (10, 29), (30, 99), (100, 299), (300, None))  # segments of a document, first to last


def quality_by_position(documents: Sequence[TranslatedDocument], metrics: Metrics | None = None) -> dict[str, Any]:
    """s-BLEU and chrF++ by tenth of the document; these and d-BLEU by its number of segments; plain values for JSON.

    Tenths use documents of ten segments or more, so that each contributes to every tenth; `tenths_of` is their number,
    `shorter` that of the others. Empty tenths and ranges of lengths are left out.
    """
    metrics = metrics or Metrics()
    aligned = [align_segments(d.hypothesis, d.reference) for d in documents]
    pairs = list(zip(documents, aligned, strict=True))
    long = [(d, lines) for d, lines in pairs if len(d.reference) >= TENTHS]
    tenths = by_tenth([len(d.reference) for d, _ in long], *_lines(long), metrics) if long else []
    lengths = []
    for first, last in LENGTHS:
        own = [(d, h) for d, h in pairs if first <= len(d.reference) and (last is None or len(d.reference) <= last)]
        if own:
            hypotheses, references = _lines(own)
            wholes = [one_line(d.hypothesis) for d, _ in own], [one_line(d.reference) for d, _ in own]
            row: dict[str, Any] = {"from": first, "to": last, "documents": len(own), "segments": len(references)}
            row |= {"d_bleu": _score(metrics.bleu(), *wholes)}
            lengths.append(row | _scores(hypotheses, references, metrics))
    return {"tenths": tenths, "tenths_of": len(long), "shorter": len(documents) - len(long), "lengths": lengths}


def by_tenth(
    counts: Sequence[int], hypotheses: Sequence[str], references: Sequence[str], metrics: Metrics
) -> list[dict[str, Any]]:
    """s-BLEU and chrF++ of aligned segments by the tenth of the document that holds their middle.

    counts: the number of consecutive segments of each document. Scores are None for empty tenths.
    """
    tenths = [min(int(TENTHS * (i + 0.5) / count), TENTHS - 1) for count in counts for i in range(count)]
    found: list[dict[str, Any]] = []
    for tenth in range(TENTHS):
        places = [place for place, own in enumerate(tenths) if own == tenth]
        row: dict[str, Any] = {"from": tenth / TENTHS, "to": (tenth + 1) / TENTHS, "segments": len(places)}
        found.append(row | _scores([hypotheses[i] for i in places], [references[i] for i in places], metrics))
    return found


def _lines(pairs: Sequence[tuple[TranslatedDocument, Sequence[str]]]) -> tuple[list[str], list[str]]:
    """Hypotheses and references of all segments, one per line."""
    return [one_line([h]) for _, lines in pairs for h in lines], [one_line([r]) for d, _ in pairs for r in d.reference]


def _scores(hypotheses: Sequence[str], references: Sequence[str], metrics: Metrics) -> dict[str, Any]:
    return {
        "s_bleu": _score(metrics.bleu(), hypotheses, references),
        "chrf": _score(metrics.chrf(), hypotheses, references),
    }


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> float | None:
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score) if references else None
