"""Words of a corpus as numbers, and which words translate which, learned from beads that an earlier pass found."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import regex

# A word, one character of a script without spaces, or a sign that translations keep.
_WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|[\w\p{M}]+|[^\s\w.,;:'\"`-]"
)
STEM = 5  # letters by which related words of two languages are alike: "condition", "condición"
NULL = 0  # the word that stands in every source and target, for what has no translation
SMOOTHING = 1.0  # added to the count of a word: seen once, it translates into nothing for certain
LEAST = 1e-3  # probability below which a pair is forgotten
ROUNDS = 5
CHANCE = 10.0  # times that a word has to be there before its share of the text is that of the language
WORD_PAIRS = 6_000_000  # of which a lexicon is learned, about 15,000 beads of sentences


def words(text: str) -> list[str]:
    """The words of a text, folded."""
    return _WORD.findall(text.casefold())


def stem(word: str) -> str:
    """What a word and its relatives in a language of the same script share: its first letters without accents; a word
    with other characters as it is."""
    if not word.isalpha():
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))[:STEM]


class Vocabulary:
    """The words of one side of a corpus. `stems` is shared by both sides, so that alike words have the same stem."""

    def __init__(self, stems: dict[str, int]) -> None:
        self._ids: dict[str, int] = {"": NULL}
        self._stems = stems
        self._stem_of = [-1]
        self._counts: list[int] = [0]

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, text: str) -> np.ndarray:
        """The numbers of the words of a text, counted."""
        found = []
        for word in words(text):
            number = self._ids.setdefault(word, len(self._ids))
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
        """The probability of each word in any text of this language, none of them 0."""
        counts = np.array(self._counts, dtype=np.float64) + 0.5
        return (counts / counts.sum() * counts / (counts + CHANCE)).astype(np.float32)


class Lexicon:
    """Probabilities t(told | given) of the words of one side by those of the other, by pairs; at first there are none.

    given, told     words of the pairs, sorted by given
    probabilities   of these
    """

    def __init__(self, given: np.ndarray, told: np.ndarray, probabilities: np.ndarray, size: int) -> None:
        self._told, self._probabilities = told, probabilities
        self._starts = np.searchsorted(given, np.arange(size + 1))

    def table(self, given: np.ndarray, told: np.ndarray) -> np.ndarray:
        """The probabilities of some words (sorted, each once) as a matrix, (given, told), float32."""
        found = np.zeros((len(given), len(told)), dtype=np.float32)
        starts, counts = self._starts[given], self._starts[given + 1] - self._starts[given]
        row = np.repeat(np.arange(len(given)), counts)
        pair = np.arange(len(row)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        column = np.searchsorted(told, self._told[pair])
        column[column == len(told)] = 0
        here = told[column] == self._told[pair] if len(told) else np.zeros(0, dtype=bool)
        found[row[here], column[here]] = self._probabilities[pair[here]]
        return found

    def pairs(self, least: float) -> Iterator[tuple[int, int, float]]:
        """The pairs of given and told words with a probability of at least so much."""
        given = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        likely = np.flatnonzero(self._probabilities >= least)
        columns = (given[likely].tolist(), self._told[likely].tolist(), self._probabilities[likely].tolist())
        yield from zip(*columns, strict=True)


def no_lexicon(size: int) -> Lexicon:
    """One that knows nothing."""
    nothing = np.zeros(0, dtype=np.int64)
    return Lexicon(nothing, nothing, np.zeros(0, dtype=np.float32), size)


def learn(beads: Iterable[tuple[np.ndarray, np.ndarray]], sizes: Sequence[int], seed: int) -> tuple[Lexicon, Lexicon]:
    """Lexicons t(target | source) and t(source | target) of the words of beads, by expectation maximisation.

    IBM model 1 over the distinct words of each bead [Brown et al., "The Mathematics of Statistical Machine
    Translation", Computational Linguistics 19 (1993)], as Moore ("Fast and Accurate Sentence Alignment of Bilingual
    Corpora", AMTA 2002) does between two passes. Of a large corpus a draw of beads serves, of `WORD_PAIRS` pairs of
    words in all.
    sizes: words of either vocabulary. Cost O(WORD_PAIRS * ROUNDS).
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


def _maximise(pair: np.ndarray, given: np.ndarray, told: np.ndarray, place: np.ndarray, size: int) -> Lexicon:
    """place: which word of which bead is told in each occurrence of a pair; it has one origin."""
    place = np.unique(place, return_inverse=True)[1]
    probability = np.ones(len(given))
    for _ in range(ROUNDS):
        share = probability[pair]
        share /= np.bincount(place, share)[place]
        count = np.bincount(pair, share, minlength=len(given))
        probability = count / (np.bincount(given, count, minlength=size)[given] + SMOOTHING)
    kept = np.flatnonzero((probability >= LEAST) & (told != NULL) & (given != NULL))
    kept = kept[np.argsort(given[kept], kind="stable")]
    return Lexicon(given[kept], told[kept], probability[kept].astype(np.float32), size)
