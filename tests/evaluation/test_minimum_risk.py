"""Minimum Bayes risk against a pairwise matrix of utilities."""

from __future__ import annotations

import pytest
from sacrebleu import sentence_bleu, sentence_chrf

from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.minimum_risk import best_segments, expected_utilities

TEXTS = ["the cat sees a dog", "a cat sees the dog", "the cat sees a dog", "it runs", "the cat saw a small dog", ""]
METRICS = {"chrf": Metrics().chrf(), "bleu": Metrics().bleu(effective_order=True)}
SCORES = {
    "chrf": lambda one, other: sentence_chrf(one, [other], word_order=2).score,
    "bleu": lambda one, other: sentence_bleu(one, [other]).score,
}


def utilities(metric: str, texts: list[str]) -> list[float]:
    """The means of the rows of the matrix."""
    matrix = [[100.0 if one == other else SCORES[metric](one, other) for other in texts] for one in texts]
    return [sum(row) / len(row) for row in matrix]


@pytest.mark.parametrize("metric", SCORES)
def test_utilities_are_the_means_of_the_matrix(metric):
    found = expected_utilities(TEXTS, METRICS[metric])
    assert found == pytest.approx(utilities(metric, TEXTS))
    assert max(found) == found[0] == found[2]


def test_segments_are_chosen_one_by_one():
    candidates = [("a dog", "x y"), ("a cat", "it runs"), ("a dog", "it runs far")]
    chosen, found = best_segments(candidates, METRICS["chrf"])
    assert chosen[0] == "a dog"
    for n, (text, utility) in enumerate(zip(chosen, found, strict=True)):
        texts = [segments[n] for segments in candidates]
        expected = utilities("chrf", texts)
        assert utility == pytest.approx(max(expected))
        assert text == texts[expected.index(max(expected))]
    with pytest.raises(ValueError, match=r"segment counts differ \(2, 1\): wanted equal counts, or level=document"):
        best_segments([("a", "b"), ("a",)], METRICS["chrf"])
