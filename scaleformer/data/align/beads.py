"""Aligns the segments of two texts: finds the best chain of beads by dynamic programming.

A bead is s source and t target segments that belong together. Its score is the log-odds that the texts are translations
of each other rather than unrelated. A segment without a partner scores 0, so its prior decides:

    score = (L(target | source) + L(source | target)) / 2 + length + structure + log prior(s, t)
    L(other | given) = sum over words w of other of log(m + (1 - m) t(w | given) / p(w)),  t(w | given) = mean t(w | u)

where m is the share that translations leave open, t the lexicon (or the likeness of words, if greater) and p the
frequency of a word. length compares the numbers of characters [Gale, Church, Computational Linguistics 19 (1993)];
structure says whether both begin a block, and of which kind. Cost O(I J); longer texts are compared only within a band
of `BAND` segments around the diagonal, and a chain that touches its edge is searched again at twice the width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaleformer.data.align.lexicon import Lexicon

PRIORS = {
    (1, 1): 0.89,
    (1, 2): 0.03,
    (2, 1): 0.03,
    (2, 2): 0.005,
    (1, 3): 0.01,
    (3, 1): 0.01,
    (1, 0): 0.0125,
    (0, 1): 0.0125,
}
SHAPES = [shape for shape in PRIORS if 0 not in shape]
MOVES = list(PRIORS)
MOST = max(max(shape) for shape in SHAPES)
BAND = 800  # target segments that each source segment is compared with
ROWS = 256  # source segments compared at once
LIKENESS = 0.3  # t(w | u) of equal or similar words
CROSSING = -2.0  # for each end of a block inside a bead
RATIO_BACKGROUND = 1.0  # deviation of the log length ratio of unrelated texts


@dataclass
class Side:
    """The segments of one side of a document.

    words       their words, as numbers in the corpus's vocabulary
    characters  their lengths
    labels      the kind of block that a segment begins, or "inside"
    begins      whether a segment begins a block
    """

    words: list[np.ndarray]
    characters: np.ndarray
    labels: np.ndarray
    begins: np.ndarray

    def __len__(self) -> int:
        return len(self.words)

    def window(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The distinct words of the segments from start to stop, and how often each has them, (segments, words)."""
        some = self.words[start:stop]
        types, place = np.unique(np.concatenate([*some, np.zeros(0, dtype=np.int64)]), return_inverse=True)
        cell = np.repeat(np.arange(len(some)), [len(w) for w in some]) * len(types) + place
        counts = np.bincount(cell, minlength=len(some) * len(types))
        return types, counts.reshape(len(some), len(types)).astype(np.float32)


@dataclass
class Knowledge:
    """What is known about a language pair.

    lexicons     t(target | source), t(source | target)
    stems        of the words of each side
    frequencies  of the words of each side
    structure    the log-odds of two labels in one bead
    open         the share of a text that its translation does not account for
    ratio        target characters per source character
    """

    lexicons: tuple[Lexicon, Lexicon]
    stems: tuple[np.ndarray, np.ndarray]
    frequencies: tuple[np.ndarray, np.ndarray]
    structure: np.ndarray
    open: float
    ratio: float


@dataclass(frozen=True)
class Bead:
    """Segments that belong together: source[i : i + s], target[j : j + t]; score is the log-odds without the prior."""

    i: int
    j: int
    s: int
    t: int
    score: float


@dataclass(frozen=True)
class Window:
    """Scores of beads, (shapes, source segments from start, target segments from low)."""

    start: int
    low: int
    scores: np.ndarray


def align(source: Side, target: Side, knowledge: Knowledge) -> list[Bead]:
    """The best chain of beads; every segment is in exactly one bead."""
    width = BAND
    while True:
        beads, touched = _best_chain(source, target, knowledge, width)
        if not touched:
            return beads
        width *= 2


def _best_chain(source: Side, target: Side, knowledge: Knowledge, width: int) -> tuple[list[Bead], bool]:
    rows, columns = len(source), len(target)
    pending = [np.full(columns + 1, -np.inf, dtype=np.float32) for _ in range(MOST + 1)]  # best of rows i, i + 1, ...
    pending[0][0] = 0
    moves = np.full((rows + 1, columns + 1), -1, dtype=np.int8)
    slope = np.log(PRIORS[0, 1]) * np.arange(columns + 1, dtype=np.float32)
    windows: list[Window] = []
    for start, stop, low, high in _windows(rows, columns, width):
        windows.append(Window(start, low, bead_scores(source, target, knowledge, (start, stop), (low, high))))
        for i in range(start, stop):
            _skip_targets(pending[0], moves[i], slope)
            for move, (s, t) in enumerate(SHAPES):
                if i + s <= rows:
                    last = min(high, columns - t + 1)
                    found = pending[0][low:last] + windows[-1].scores[move, i - start, : last - low]
                    _keep_better(pending[s][low + t : last + t], moves[i + s, low + t : last + t], found, move)
            _keep_better(pending[1], moves[i + 1], pending[0] + np.float32(np.log(PRIORS[1, 0])), MOVES.index((1, 0)))
            pending = [*pending[1:], np.full(columns + 1, -np.inf, dtype=np.float32)]
    _skip_targets(pending[0], moves[rows], slope)
    return _trace(moves, windows, rows, columns)


def _windows(rows: int, columns: int, width: int) -> Iterator[tuple[int, int, int, int]]:
    """Ranges (start, stop) of source segments and the ranges (low, high) of target segments to compare them with."""
    for start in range(0, rows, ROWS):
        stop = min(start + ROWS, rows)
        if columns <= width:
            yield start, stop, 0, columns
        else:
            low, high = (place * columns // rows for place in (start, stop))
            yield start, stop, max(0, low - width // 2), min(columns, high + width // 2)


def _skip_targets(best: np.ndarray, moves: np.ndarray, slope: np.ndarray) -> None:
    """The (0, 1) beads of one row: best[j] = max over k <= j of best[k] + slope[j] - slope[k]."""
    with_gaps = np.maximum.accumulate(best - slope) + slope
    better = with_gaps > best + 1e-3
    best[better] = with_gaps[better]
    moves[better] = MOVES.index((0, 1))


def _keep_better(best: np.ndarray, moves: np.ndarray, found: np.ndarray, move: int) -> None:
    better = found > best
    best[better] = found[better]
    moves[better] = move


def _trace(moves: np.ndarray, windows: list[Window], rows: int, columns: int) -> tuple[list[Bead], bool]:
    """The chain that covers both texts, and whether it touches an edge of the band."""
    beads: list[Bead] = []
    touched = False
    i, j = rows, columns
    while i or j:
        s, t = MOVES[moves[i, j]]
        i, j = i - s, j - t
        score = 0.0
        if s:
            window = windows[i // ROWS]
            high = window.low + window.scores.shape[2]
            touched |= (j <= window.low and window.low > 0) or (j >= high - 1 and high < columns)
            if t:
                found = window.scores[SHAPES.index((s, t)), i - window.start, j - window.low]
                score = float(found) - float(np.log(PRIORS[s, t]))
        beads.append(Bead(i, j, s, t, score))
    return beads[::-1], touched


def bead_scores(
    source: Side, target: Side, knowledge: Knowledge, rows: tuple[int, int], columns: tuple[int, int]
) -> np.ndarray:
    """The scores of beads of all `SHAPES` that begin at source segments `rows` and target segments `columns`:
    (shapes, rows, columns), float32; -inf if a text ends before the bead does."""
    (start, stop), (low, high) = rows, columns
    height, width = stop - start, high - low
    ends = min(stop + MOST - 1, len(source)), min(high + MOST - 1, len(target))
    sides = (*source.window(start, ends[0]), *target.window(low, ends[1]))
    forward = _log_odds(*sides, knowledge, 0)  # MOST of (rows, columns): L(target segment | s source segments)
    backward = _log_odds(*sides[2:], *sides[:2], knowledge, 1)  # MOST of (columns, rows)
    found = np.full((len(SHAPES), height, width), -np.inf, dtype=np.float32)
    lengths = [_joined(side.characters[a:b]) for side, a, b in ((source, start, ends[0]), (target, low, ends[1]))]
    structure = knowledge.structure[source.labels[start:stop, None], target.labels[None, low:high]]
    inside = [
        np.append(_joined(side.begins[a:b].astype(np.float32))[:, 1:], np.zeros((MOST, 1)), 1)
        for side, a, b in ((source, start, ends[0]), (target, low, ends[1]))
    ]
    for move, (s, t) in enumerate(SHAPES):
        h, w = min(height, ends[0] - start - s + 1), min(width, ends[1] - low - t + 1)
        if h <= 0 or w <= 0:
            continue
        both = sum(forward[s - 1][:h, b : b + w] for b in range(t)) + sum(
            backward[t - 1][:w, a : a + h].T for a in range(s)
        )
        crossings = (inside[0][s - 2, :h, None] if s > 1 else 0) + (inside[1][t - 2, None, :w] if t > 1 else 0)
        length = _length_odds(lengths[0][s - 1, :h, None] * knowledge.ratio, lengths[1][t - 1, None, :w])
        found[move, :h, :w] = both / 2 + length + structure[:h, :w] + CROSSING * crossings + np.log(PRIORS[s, t])
    return found


def _joined(values: np.ndarray) -> np.ndarray:
    """The sums of 1, 2, ... `MOST` neighbours along the first axis, (MOST, *values.shape); padded with 0."""
    padded = np.concatenate([values, np.zeros((MOST, *values.shape[1:]), dtype=values.dtype)])
    return np.cumsum([padded[n : n + len(values)] for n in range(MOST)], axis=0, dtype=np.float32)


def _length_odds(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The log-odds of the lengths: the log of their ratio is normal, with less variance the longer they are."""
    ratio = np.log((target + 4) / (source + 4))
    variance = 0.03 + 2 / (source + target + 8)
    return 0.5 * (ratio**2 / RATIO_BACKGROUND - ratio**2 / variance - np.log(variance / RATIO_BACKGROUND))


def _log_odds(
    given: np.ndarray,
    given_counts: np.ndarray,
    other: np.ndarray,
    told_counts: np.ndarray,
    knowledge: Knowledge,
    direction: int,
) -> np.ndarray:
    """L(other segment | n given segments in a row) for n = 1 ... `MOST`: (MOST, given segments, other segments)."""
    stems, frequency = knowledge.stems, knowledge.frequencies[1 - direction][other]
    table = knowledge.lexicons[direction].table(given, other)
    alike = stems[direction][given][:, None] == stems[1 - direction][other][None, :]
    np.maximum(table, alike * np.float32(LIKENESS), out=table)
    odds = np.zeros((MOST, len(given_counts), len(told_counts)), dtype=np.float32)
    reach, count = (given_counts @ (table / frequency)), given_counts.sum(1, keepdims=True)
    for n, (reached, counted) in enumerate(zip(_joined(reach), _joined(count), strict=True)):
        known = knowledge.open + (1 - knowledge.open) * reached / np.maximum(
            counted, 1
        )  # (given segments, other words)
        odds[n] = np.log(known) @ told_counts.T
    return odds
