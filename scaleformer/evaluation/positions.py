"""Quality by position in the document and by document length [Peng 2024, arXiv 2412.17592]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.saved_translations import TranslatedDocument, lines_of
from scaleformer.evaluation.scores import corpus_bleu, corpus_chrf

TENTHS = 10
LENGTHS = ((1, 3), (4, 9), (10, 29), (30, 99), (100, 299), (300, None))  # segments of a document, first to last


def quality_by_position(documents: Sequence[TranslatedDocument], metrics: Metrics | None = None) -> dict[str, Any]:
    """s-BLEU and chrF++ by tenth of the document; these and d-BLEU by its number of segments; plain values for JSON.

    Tenths use documents of ten segments or more, so that each contributes to every tenth; `tenths_of` is their number,
    `shorter` that of the others. Empty tenths and ranges of lengths are left out.
    """
    metrics = metrics or Metrics()
    long = [d for d in documents if len(d.target) >= TENTHS]
    tenths = by_tenth(long, metrics) if long else []
    lengths = []
    for first, last in LENGTHS:
        own = [d for d in documents if first <= len(d.target) and (last is None or len(d.target) <= last)]
        if own:
            whole, segments = lines_of(own, "document"), lines_of(own)
            row: dict[str, Any] = {"from": first, "to": last}
            row |= {"documents": len(own), "segments": len(segments.references)}
            row |= {"d_bleu": corpus_bleu(whole.hypotheses, whole.references, metrics)}
            lengths.append(row | _scores(segments.hypotheses, segments.references, metrics))
    return {"tenths": tenths, "tenths_of": len(long), "shorter": len(documents) - len(long), "lengths": lengths}


def by_tenth(documents: Sequence[TranslatedDocument], metrics: Metrics) -> list[dict[str, Any]]:
    """s-BLEU and chrF++ of aligned segments by the tenth of the document that holds their middle; None for empty
    tenths."""
    lines, counts = lines_of(documents), [len(d.target) for d in documents]
    tenths = [min(int(TENTHS * (i + 0.5) / count), TENTHS - 1) for count in counts for i in range(count)]
    found: list[dict[str, Any]] = []
    for tenth in range(TENTHS):
        places = [place for place, own in enumerate(tenths) if own == tenth]
        row: dict[str, Any] = {"from": tenth / TENTHS, "to": (tenth + 1) / TENTHS, "segments": len(places)}
        hypotheses, references = ([side[i] for i in places] for side in (lines.hypotheses, lines.references))
        found.append(row | _scores(hypotheses, references, metrics))
    return found


def _scores(hypotheses: Sequence[str], references: Sequence[str], metrics: Metrics) -> dict[str, Any]:
    if not references:
        return {"s_bleu": None, "chrf": None}
    bleu, chrf = (score(hypotheses, references, metrics) for score in (corpus_bleu, corpus_chrf))
    return {"s_bleu": bleu, "chrf": chrf}
