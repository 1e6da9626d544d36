"""Numbers the words of a corpus, and learns which words translate each other from the beads of an earlier pass."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import regex

# A word, one character of a script without spaces, or a symbol that translations keep.
_WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|[\w\p{M}]+|[^\s\w.,;:'\"`-]"
)
STEM = 5  # first letters that related words of two languages share: "condition", "condición"
NULL = 0  # a word added to every source and target, as partner of words without a translation
SMOOTHING = 1.0  # added to the count of a word: one seen once has no certain translation
LEAST = 1e-3  # pairs with a lower probability are dropped
ROUNDS = 5
CHANCE = 10.0  # occurrences of a word before its share of the text counts as its frequency
WORD_PAIRS = 6_000_000  # to learn a lexicon from, about 15,000 sentence beads


def words(text: str) -> list[str]:
    """The words of a text, case-folded."""
    return _WORD.findall(text.casefold())


def stem(word: str) -> str:
    """The first letters of a word without accents, which related words of another language share; a word with other
    characters unchanged."""
    if not word.isalpha():
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))[:STEM]


class Vocabulary:
    """The words of one side of a corpus. Both sides share `stems`, so that similar words have the same stem."""

    def __init__(self, stems: dict[str, int]) -> None:
        self.ids: dict[str, int] = {"": NULL}
        self._stems = stems
        self._stem_of = [-1]
        self._counts: list[int] = [0]

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, text: str) -> np.ndarray:
        """Count the words of a text and return their numbers."""
        found = []
        for word in words(text):
            number = self.ids.setdefault(word, len(self.ids))
            if number == len(self._stem_of):
                self._stem_of.append(self._stems.setdefault(stem(word), len(self._stems)))
                self._counts.append(0)
            self._counts[number] += 1
            found.append(number)
        return np.array(found, dtype=np.int64)

    def stem_of(self) -> np.ndarray:
        """The number of each word's stem."""
        return np.array(self._stem_of)

    def frequencies(self) -> np.ndarray:
        """The probability of each word in a text of this language, never 0."""
        counts = np.array(self._counts, dtype=np.float64) + 0.5
        return (counts / counts.sum() * counts / (counts + CHANCE)).astype(np.float32)


class Lexicon:
    """Probabilities t(other | given) of the words of one side given those of the other; 0 for all pairs not listed.

    given, other    words of the pairs, sorted by given
    probabilities   of the pairs
    """

    def __init__(self, given: np.ndarray, other: np.ndarray, probabilities: np.ndarray, size: int) -> None:
        self._other, self._probabilities = other, probabilities
        self._starts = np.searchsorted(given, np.arange(size + 1))

    def table(self, given: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The probabilities of some words (sorted, distinct) as a matrix, (given, other), float32."""
        found = np.zeros((len(given), len(other)), dtype=np.float32)
        starts, counts = self._starts[given], self._starts[given + 1] - self._starts[given]
        row = np.repeat(np.arange(len(given)), counts)
        pair = np.arange(len(row)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        column = np.searchsorted(other, self._other[pair])
        column[column == len(other)] = 0
        here = other[column] == self._other[pair] if len(other) else np.zeros(0, dtype=bool)
        found[row[here], column[here]] = self._probabilities[pair[here]]
        return found

    def pairs(self, least: float) -> Iterator[tuple[int, int, float]]:
        """The pairs of given and other words with a probability of at least `least`."""
        given = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        likely = np.flatnonzero(self._probabilities >= least)
        columns = (given[likely].tolist(), self._other[likely].tolist(), self._probabilities[likely].tolist())
        yield from zip(*columns, strict=True)


def no_lexicon(size: int) -> Lexicon:
    """An empty lexicon."""
    nothing = np.zeros(0, dtype=np.int64)
    return Lexicon(nothing, nothing, np.zeros(0, dtype=np.float32), size)


def learn(beads: Iterable[tuple[np.ndarray, np.ndarray]], sizes: Sequence[int], seed: int) -> tuple[Lexicon, Lexicon]:
    """Lexicons t(target | source) and t(source | target) of the words of beads, by expectation maximisation.

    IBM model 1 over the distinct words of each bead [Brown et al., "The Mathematics of Statistical Machine
    Translation", Computational Linguistics 19 (1993)], as Moore ("Fast and Accurate Sentence Alignment of Bilingual
    Corpora", AMTA 2002) does between two passes. A large corpus is sampled down to beads with `WORD_PAIRS` pairs of
    words in all.
    sizes: words of each vocabulary. Cost O(WORD_PAIRS * ROUNDS).
    """
    distinct = [(_distinct(s), _distinct(t)) for s, t in beads]
    random.Random(seed).shuffle(distinct)
    total = np.cumsum([len(s) * len(t) for s, t in distinct])
    distinct = distinct[: max(1, int(np.searchsorted(total, WORD_PAIRS)))] if len(distinct) else []
    if not distinct:
        return no_lexicon(sizes[0]), no_lexicon(sizes[1])
    source = np.concatenate([np.repeat(s, len(t)) for s, t in distinct])
    target = np.concatenate([np.tile(t, len(s)) for s, t in distinct])
    bead = np.repeat(np.arange(len(distinct)), [len(s) * len(t) for s, t in distinct])
    pairs, pair = np.unique(source * sizes[1] + target, return_inverse=True)
    words_of = pairs // sizes[1], pairs % sizes[1]
    return (
        _maximise(pair, words_of[0], words_of[1], bead * sizes[1] + target, sizes[0]),
        _maximise(pair, words_of[1], words_of[0], bead * sizes[0] + source, sizes[1]),
    )


def _distinct(found: np.ndarray) -> np.ndarray:
    return np.unique(np.append(found, NULL))


def _maximise(pair: np.ndarray, given: np.ndarray, other: np.ndarray, place: np.ndarray, size: int) -> Lexicon:
    """The lexicon after `ROUNDS` of EM. place: the other word's bead and number for each occurrence of a pair; all
    pairs with the same place compete for one origin."""
    place = np.unique(place, return_inverse=True)[1]
    probability = np.ones(len(given))
    for _ in range(ROUNDS):
        share = probability[pair]
        share /= np.bincount(place, share)[place]
        count = np.bincount(pair, share, minlength=len(given))
        probability = count / (np.bincount(given, count, minlength=size)[given] + SMOOTHING)
    kept = np.flatnonzero((probability >= LEAST) & (other != NULL) & (given != NULL))
    kept = kept[np.argsort(given[kept], kind="stable")]
    return Lexicon(given[kept], other[kept], probability[kept].astype(np.float32), size)
