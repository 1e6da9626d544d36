"""Cuts a text without boundaries into the segments of its reference, and finds omissions and additions.

The cuts come from the cheapest edit of the reference into the text, token by token: AS-WER [Matusov 2005], here with
costs that separate likely translations from unlikely ones (the same word inflected, a word for a punctuation mark). The
best cut between two halves of the reference is where the cost of the first half with the text before, plus that of the
second half with the text after, is smallest [Hirschberg 1975]; then each half is cut in the same way. Time O(tokens of
reference * tokens of text), memory O(tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scaleformer.text.words import token_spans, unspaced

GAP, OTHER, ACROSS, ALIKE = 2, 3, 4, 1  # costs: no partner; a different token, one of a different kind, a similar one
STEM = 4  # words with this many equal first letters, case ignored, are similar
RUN = 5  # so many tokens in a row without a partner are omitted or added text; fewer are a paraphrase

Ints = NDArray[np.int64]
Costs = NDArray[np.int32]  # edit costs


@dataclass(frozen=True)
class Difference:
    """What a text omits from its reference, and adds to it: tokens in runs of `RUN` or more without a partner, as over-
    and undertranslation of [SEGALE, Wang 2025]; segments: those that are missing entirely."""

    reference_tokens: int = 0
    hypothesis_tokens: int = 0
    omitted_tokens: int = 0
    added_tokens: int = 0
    omitted_segments: int = 0

    def __add__(self, other: Difference) -> Difference:
        return Difference(*map(add, astuple(self), astuple(other)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with shares of the reference's and of the text's tokens."""
        omitted = _share(self.omitted_tokens, self.reference_tokens)
        return {**vars(self), "omitted": omitted, "added": _share(self.added_tokens, self.hypothesis_tokens)}


def resegment(text: str, reference: Sequence[str]) -> list[str]:
    """Cut the text into as many segments as the reference has, in order; only white space at the cuts is lost.

    Cuts are between words; in scripts without spaces, between any two characters. Raises ValueError for a reference
    without segments.
    """
    if not reference:
        raise ValueError("the reference has no segments to align with")
    spans = token_spans(text)
    if not spans:
        return [text.strip(), *[""] * (len(reference) - 1)]
    ends = _cuts(text, spans, reference)
    places = [0, *(spans[end][0] if end < len(spans) else len(text) for end in ends[:-1]), len(text)]
    return [text[start:stop].strip() for start, stop in pairwise(places)]


def difference(segments: Sequence[str], reference: Sequence[str]) -> Difference:
    """What aligned segments omit from those of the reference, and add to them; equal counts."""
    total = Difference()
    for own, wanted in zip(segments, reference, strict=True):
        tokens = _Tokens()
        given, expected = tokens.numbers(own), tokens.numbers(wanted)
        omitted, added = _without_partner(expected, given, tokens)
        gone = len(expected) > 0 and not len(given)  # at any length
        missing = len(expected) if gone else _in_runs(omitted)
        total += Difference(len(expected), len(given), missing, _in_runs(added), int(gone))
    return total


class _Tokens:
    """Numbers the tokens of a document, and gives the cost of replacing one by another."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self._kinds: tuple[Ints, NDArray[np.bool_]] | None = None

    def numbers(self, text: str) -> Ints:
        own = (text[start:stop] for start, stop in token_spans(text))
        return np.array([self.known.setdefault(token, len(self.known)) for token in own], dtype=np.int64)

    def costs(self, tokens: Ints) -> Any:
        """A function: token -> its cost against each of `tokens`, (tokens,) of int8."""
        if self._kinds is None or len(self._kinds[0]) < len(self.known):
            stems: dict[str, int] = {}
            numbers = [stems.setdefault(token.casefold()[:STEM], len(stems)) for token in self.known]
            self._kinds = np.array(numbers), np.array([token[0].isalnum() or token[0] == "_" for token in self.known])
        stem, word = self._kinds

        @lru_cache(maxsize=256)  # for the most frequent tokens
        def of(token: int) -> NDArray[np.int8]:
            found = np.where(word[tokens] == word[token], OTHER, ACROSS).astype(np.int8)
            found[stem[tokens] == stem[token]] = ALIKE
            found[tokens == token] = 0
            return found

        return of


def _last_row(reference: Ints, text: Ints, tokens: _Tokens) -> Costs:
    """(text tokens + 1,) the cost of the whole reference with each prefix of the text."""
    steps = np.arange(len(text) + 1, dtype=np.int32) * np.int32(GAP)
    row, costs = steps.copy(), tokens.costs(text)
    for token in reference.tolist():
        row = _next_row(row, costs(token), steps)
    return row


def _next_row(row: Costs, costs: NDArray[np.int8], steps: Costs) -> Costs:
    new = np.empty_like(row)
    new[0] = row[0] + GAP
    np.minimum(row[:-1] + costs, row[1:] + GAP, out=new[1:])
    return np.minimum.accumulate(new - steps) + steps


def _cuts(text: str, spans: Sequence[tuple[int, int]], reference: Sequence[str]) -> list[int]:
    """The token of the text at which each reference segment ends."""
    tokens = _Tokens()
    own, parts = tokens.numbers(text), [tokens.numbers(segment) for segment in reference]
    begins = [
        start == 0 or end < start or unspaced(text[first:stop])
        for (first, end), (start, stop) in zip([(0, 0), *spans], spans, strict=False)
    ]
    possible = np.array([*begins, True])
    marks = np.array([not text[start].isalnum() for start, _ in spans])
    ends = [len(own)] * len(parts)

    def cut(first: int, last: int, start: int, stop: int) -> None:
        """Segments first to last - 1 cover tokens start to stop - 1."""
        if last - first == 1:
            ends[first] = stop
            return
        middle = (first + last) // 2
        before, after = np.concatenate(parts[first:middle]), np.concatenate(parts[middle:last])
        piece = own[start:stop]
        costs = _last_row(before, piece, tokens) + _last_row(after[::-1], piece[::-1], tokens)[::-1]
        allowed = possible[start : stop + 1].copy()
        allowed[[0, -1]] = True
        costs = np.where(allowed, costs, costs.max() + 1)
        best = np.flatnonzero(costs == costs.min())
        place = start + _likeliest(best, piece, marks[start:stop], parts[middle - 1])
        cut(first, middle, start, place)
        cut(middle, last, place, stop)

    cut(0, len(parts), 0, len(own))
    return ends


def _likeliest(best: Ints, piece: Ints, marks: NDArray[np.bool_], segment: Ints) -> int:
    """Of cuts with equal costs: the first one after the mark or word that ends the segment, or after any mark, or the
    middle one."""
    inside = best[best > 0]
    if len(segment):
        for good in (piece[inside - 1] == segment[-1], marks[inside - 1]):
            if good.any():
                return int(inside[good.argmax()])
    return int(best[len(best) // 2])


def _without_partner(reference: Ints, text: Ints, tokens: _Tokens) -> tuple[list[bool], list[bool]]:
    """Whether each token of either has no partner in the cheapest edit of one into the other."""
    steps = np.arange(len(text) + 1, dtype=np.int32) * np.int32(GAP)
    costs = tokens.costs(text) if len(text) else lambda token: np.zeros(0, np.int8)
    rows = [steps.copy()]
    for token in reference.tolist():
        rows.append(_next_row(rows[-1], costs(token), steps))
    omitted, added = [True] * len(reference), [True] * len(text)
    i, j = len(reference), len(text)
    while i and j:
        if rows[i][j] == rows[i - 1][j - 1] + costs(int(reference[i - 1]))[j - 1]:
            i, j = i - 1, j - 1
            omitted[i] = added[j] = False
        elif rows[i][j] == rows[i - 1][j] + GAP:
            i -= 1
        else:
            j -= 1
    return omitted, added


def _in_runs(alone: Sequence[bool]) -> int:
    lengths = (len(list(run)) for lacks, run in groupby(alone) if lacks)
    return sum(length for length in lengths if length >= RUN)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
