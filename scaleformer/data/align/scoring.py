"""Scores texts that are aligned already, as the aligner scores beads (`scaleformer.data.align.beads`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaleformer.data.align.beads import PRIORS, SHAPES, Knowledge, Side, bead_scores
from scaleformer.data.align.lexicon import Vocabulary, learn, words
from scaleformer.data.align.passes import openness
from scaleformer.data.align.pipeline import LEAST_MEDIAN, confidence

WINDOW = 16  # pairs whose words are looked up together
LONGEST = 200  # known words of a text that are compared; the rest of a longer one has no part in its score


class PairScorer:
    """The log-odds that two texts are translations of each other, by a lexicon that is learned from a sample of pairs.

    Words that the sample lacks do not count. Cost O(WINDOW * words) per pair.
    """

    def __init__(self, sample: Sequence[tuple[str, str]], seed: int = 1) -> None:
        stems: dict[str, int] = {}
        self._vocabularies = Vocabulary(stems), Vocabulary(stems)
        beads = [(self._vocabularies[0].add(s), self._vocabularies[1].add(t)) for s, t in sample]
        first, second = self._vocabularies
        lengths = [sum(len(pair[side]) for pair in sample) for side in (0, 1)]
        self._knowledge = Knowledge(
            lexicons=learn(beads, (len(first), len(second)), seed),
            stems=(first.stem_of(), second.stem_of()),
            frequencies=(first.frequencies(), second.frequencies()),
            structure=np.zeros((1, 1), dtype=np.float32),
            open=openness(len(sample)),
            ratio=lengths[1] / lengths[0] if all(lengths) else 1.0,
        )
        odds = self.scores(sample) / np.array([max(1, len(s) + len(t)) for s, t in sample])
        self._scale = max(LEAST_MEDIAN, float(np.median(odds))) if sample else LEAST_MEDIAN

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """The log-odds of each pair."""
        sides = [self._side([pair[side] for pair in pairs], side) for side in (0, 1)]
        found = [np.zeros(0)]
        for start in range(0, len(pairs), WINDOW):
            window = start, min(start + WINDOW, len(pairs))
            found.append(bead_scores(sides[0], sides[1], self._knowledge, window, window)[0].diagonal())
        return np.concatenate(found) - np.log(PRIORS[SHAPES[0]])

    def confidence(self, scores: np.ndarray, characters: np.ndarray) -> np.ndarray:
        """From 0 to 1, in relation to the median of the sample; characters: of both texts."""
        return np.asarray(confidence(scores, np.maximum(characters, 1), self._scale))

    def _side(self, texts: Sequence[str], side: int) -> Side:
        known = self._vocabularies[side].ids
        numbers = [np.array([known[w] for w in words(text) if w in known][:LONGEST], dtype=np.int64) for text in texts]
        none = np.zeros(len(texts), dtype=np.int64)
        return Side(numbers, np.array([len(text) for text in texts], dtype=np.float32), none, none > 0)
