"""Quality by position in the document and by document length [Peng 2024, arXiv 2412.17592]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF

from scaleformer.evaluation.bootstrap import interval
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.saved_translations import TranslatedDocument, lines_of
from scaleformer.evaluation.scores import corpus_bleu

TENTHS = 10
LENGTHS = ((1, 3), (4, 9), (10, 29), (30, 99), (100, 299), (300, None))  # segments of a document, first to last


def quality_by_position(documents: Sequence[TranslatedDocument], metrics: Metrics | None = None) -> dict[str, Any]:
    """s-BLEU and chrF++ by tenth of the document; these and d-BLEU by its number of segments; plain values for JSON.

    Tenths use documents of ten segments or more, so that each contributes to every tenth; `tenths_of` is their number,
    `shorter` that of the others. Empty tenths and ranges of lengths are left out.
    """
    metrics = metrics or Metrics()
    long = [d for d in documents if len(d.target) >= TENTHS]
    lengths = []
    for first, last in LENGTHS:
        own = [d for d in documents if first <= len(d.target) and (last is None or len(d.target) <= last)]
        if own:
            whole, counts = lines_of(own, "document"), SegmentCounts(own, metrics)
            row: dict[str, Any] = {"from": first, "to": last}
            row |= {"d_bleu": corpus_bleu(whole.hypotheses, whole.references, metrics)}
            lengths.append(row | counts.scores(np.ones(len(counts.owners), dtype=bool)))
    tenths = by_tenth(long, metrics) if long else []
    return {"tenths": tenths, "tenths_of": len(long), "shorter": len(documents) - len(long), "lengths": lengths}


def by_tenth(documents: Sequence[TranslatedDocument], metrics: Metrics) -> list[dict[str, Any]]:
    """s-BLEU and chrF++ of aligned segments by the tenth of the document that holds their middle, with the number of
    documents and the intervals by which these may differ for others (`interval`); None for empty tenths."""
    counts = SegmentCounts(documents, metrics)
    sizes = [len(d.target) for d in documents]
    tenths = np.array([min(int(TENTHS * (i + 0.5) / size), TENTHS - 1) for size in sizes for i in range(size)])
    return [
        {"from": tenth / TENTHS, "to": (tenth + 1) / TENTHS, **counts.scores(tenths == tenth)}
        for tenth in range(TENTHS)
    ]


class SegmentCounts:
    """What sacrebleu counts in each aligned segment, from which it computes the score of any of them.

    owners  the number of the document of each segment
    """

    def __init__(self, documents: Sequence[TranslatedDocument], metrics: Metrics) -> None:
        lines = lines_of(documents)
        self.owners = np.repeat(np.arange(len(documents)), [len(d.target) for d in documents])
        self._of: list[tuple[str, BLEU | CHRF, NDArray[np.int64]]] = [
            (name, metric, np.array(metric._extract_corpus_statistics(lines.hypotheses, [lines.references])))
            for name, metric in (("s_bleu", metrics.bleu()), ("chrf", metrics.chrf()))
        ]

    def scores(self, chosen: NDArray[np.bool_]) -> dict[str, Any]:
        """The scores of the chosen segments and their intervals, plain values for JSON; None without segments."""
        owners, places = np.unique(self.owners[chosen], return_inverse=True)
        found: dict[str, Any] = {"documents": len(owners), "segments": len(places)}
        for name, metric, counts in self._of:
            own = np.zeros((len(owners), counts.shape[-1]), dtype=np.int64)
            np.add.at(own, places, counts[chosen])
            score = partial(_score, metric)
            found |= {
                name: score(own.sum(0).tolist()) if len(owners) else None,
                f"{name}_interval": interval(own, score),
            }
        return found


def _score(metric: BLEU | CHRF, counts: Sequence[float]) -> float:
    return float(metric._compute_score_from_stats(list(map(int, counts))).score)
