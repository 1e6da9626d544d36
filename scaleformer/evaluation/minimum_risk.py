"""Minimum Bayes risk: of several translations, the one most similar to all of them [Kumar & Byrne 2004]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from scaleformer.text.documents import one_line

Metric = Literal["chrf", "bleu"]


def expected_utilities(candidates: Sequence[str], metric: Any) -> list[float]:
    """The mean score, 0 to 100, of each candidate against all candidates as references, itself included.

    metric: of sacrebleu, for single sentences. Equal texts score 100 and are compared once: the cost grows with the
    square of the number of different texts.
    """
    counts = Counter(candidates)
    found = {
        text: sum(
            count * (100.0 if text == other else metric.sentence_score(text, [other]).score)
            for other, count in counts.items()
        )
        / len(candidates)
        for text in counts
    }
    return [found[text] for text in candidates]


def best_segments(candidates: Sequence[Sequence[str]], metric: Any) -> tuple[list[str], list[float]]:
    """A document made of the best of each segment, and their expected utilities; ties go to the first. Raises
    ValueError where segment counts differ."""
    if len({len(segments) for segments in candidates}) > 1:
        numbers = ", ".join(str(len(segments)) for segments in candidates)
        raise ValueError(f"segment counts differ ({numbers}): wanted equal counts, or level=document")
    chosen, utilities = [], []
    for texts in zip(*candidates, strict=True):
        found = expected_utilities([one_line([text]) for text in texts], metric)
        utilities.append(max(found))
        chosen.append(texts[found.index(utilities[-1])])
    return chosen, utilities
