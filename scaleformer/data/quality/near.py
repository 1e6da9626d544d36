"""Texts that are nearly the same: at least four fifths of their words, found by MinHash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from scaleformer.text.words import words

try:
    import rensa
except ImportError:
    rensa = None

INSTALL = "near duplicates are not looked for without rensa: pip install 'scaleformer[corpora]'"
PUNCTUATION = ".,;:!?¡¿…()[]«»“”‘’\"'`*"  # around a word
FEWEST = 5  # words of the longer of two texts that can be nearly the same
SHARED = 0.8  # of the words of the longer text
ROWS, BANDS = 3, 21  # a pair that has 4 of 5 words in common has a Jaccard index of 2/3: 99.9% share one of the bands
POSSIBLE = 0.48  # share of equal hashes from which the words are compared: 2/3 less three deviations


def tokens(text: str) -> list[str]:
    """The words of a text, each with the number of equal ones before it, so that their set says how often it has
    them."""
    seen: Counter[str] = Counter()
    found = []
    for word in (word.strip(PUNCTUATION) or word for word in words(text.casefold())):
        seen[word] += 1
        found.append(f"{word} {seen[word]}")
    return found


def digests(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """The MinHash of each set of tokens, (texts, ROWS * BANDS), uint32; of no width without rensa."""
    if rensa is None:
        return np.zeros((len(texts), 0), np.uint32)
    found = rensa.RMinHash.digests_from_token_sets(texts, ROWS * BANDS, 1)
    return np.array(found, dtype=np.uint32).reshape(len(texts), ROWS * BANDS)


def _bands(digest: np.ndarray) -> np.ndarray:
    """A number for each band of each text, (BANDS, texts), uint64."""
    parts = digest.reshape(-1, BANDS, ROWS).astype(np.uint64)
    factors = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray((parts * factors).sum(axis=2, dtype=np.uint64).T)


def same_words(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two lists of `tokens` have at least `SHARED` of the longer one in common."""
    least = SHARED * max(len(one), len(other))
    return min(len(one), len(other)) >= least and len(set(one).intersection(other)) >= least


class NearTexts:
    """Finds which of some texts others are nearly the same as. Memory: of these texts alone."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.tokens = [found if len(found := tokens(text)) >= SHARED * FEWEST else [] for text in texts]
        self._digests = digests(self.tokens)
        bands = _bands(self._digests)
        self._order = np.argsort(bands, axis=1, kind="stable")
        self._bands = np.take_along_axis(bands, self._order, axis=1)

    def find(self, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
        """(number of one of `texts`, number of a text that it is nearly the same as), each pair once."""
        if not self._digests.size:
            return
        given = [tokens(text) for text in texts]
        digest = digests(given)
        met = [np.zeros((0, 2), dtype=np.int64)]
        for keys, known, order in zip(_bands(digest), self._bands, self._order, strict=True):
            low, high = np.searchsorted(known, keys, "left"), np.searchsorted(known, keys, "right")
            met += [np.stack(np.broadcast_arrays(n, order[low[n] : high[n]]), 1) for n in np.flatnonzero(high > low)]
        pairs = np.unique(np.concatenate(met), axis=0)
        alike = (digest[pairs[:, 0]] == self._digests[pairs[:, 1]]).mean(axis=1) >= POSSIBLE
        for number, other in pairs[alike].tolist():
            if max(len(given[number]), len(self.tokens[other])) >= FEWEST and same_words(
                given[number], self.tokens[other]
            ):
                yield number, other


def near_documents(digest: np.ndarray) -> np.ndarray:
    """Pairs (earlier, later) of documents that may nearly be the same, by their MinHash, (pairs, 2); each document is
    compared with the first one of every band that it has in common with others."""
    found = [np.zeros((0, 2), dtype=np.int64)]
    for keys in _bands(digest):
        first = np.unique(keys, return_index=True, return_inverse=True)
        earlier, later = first[1][first[2].reshape(-1)], np.arange(len(keys))
        pairs = np.stack([earlier, later], axis=1)[earlier < later]
        alike = (digest[pairs[:, 0]] == digest[pairs[:, 1]]).mean(axis=1) >= POSSIBLE
        found.append(pairs[alike])
    return np.unique(np.concatenate(found), axis=0)
