"""Aligns the segments of a hypothesis with those of the reference where their counts differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scaleformer.text.documents import Document
from scaleformer.text.words import words

RULE = (
    "equal counts: by index; otherwise each hypothesis segment goes, in order, to the reference segment that makes the "
    "sum of word Dice coefficients largest, and those of one reference segment are joined by a space; in scripts "
    "without spaces each character is a word"
)


def align_segments(hypothesis: Sequence[str], reference: Sequence[str]) -> list[str]:
    """Regroup the hypothesis into as many segments as the reference has; all of it is kept, in order.

    With equal counts the hypothesis is returned unchanged. Otherwise a monotone alignment by dynamic programming, after
    [Matusov 2005] (segments instead of words, shared words instead of edits); reference segments without a partner get
    an empty one. O(hypothesis segments * reference segments).
    Raises ValueError for a reference without segments.
    """
    if len(hypothesis) == len(reference):
        return list(hypothesis)
    if not reference:
        raise ValueError("the reference has no segments to align with")
    aligned: list[list[str]] = [[] for _ in reference]
    for segment, place in zip(hypothesis, _places(hypothesis, reference), strict=True):
        aligned[place].append(segment)
    return [" ".join(segments) for segments in aligned]


def _places(hypothesis: Sequence[str], reference: Sequence[str]) -> list[int]:
    """The reference segment of each hypothesis segment, non-decreasing, with the largest sum of similarities."""
    similarity = _dice(hypothesis, reference)  # (hypothesis, reference)
    best = np.zeros(
        len(reference)
    )  # best sum so far, with the last segment assigned to reference segment i or an earlier one
    came: list[np.ndarray] = []
    for row in similarity:
        total = best + row
        best = np.maximum.accumulate(total)
        came.append(np.maximum.accumulate(np.where(total == best, np.arange(len(row)), 0)))
    places, place = [], len(reference) - 1
    for back in reversed(came):
        place = int(back[place])
        places.append(place)
    return places[::-1]


def _dice(hypothesis: Sequence[str], reference: Sequence[str]) -> np.ndarray:
    """2 * shared words / all words of every pair: (hypothesis, reference)."""
    lengths = np.array([len(words(segment)) for segment in reference])
    where: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, segment in enumerate(reference):
        for word, count in Counter(words(segment)).items():
            where[word].append((place, count))
    found = {word: np.array(entries).T for word, entries in where.items()}  # (2, reference segments with the word)
    similarity = np.zeros((len(hypothesis), len(reference)))
    for row, segment in zip(similarity, hypothesis, strict=True):
        own = words(segment)
        for word, count in Counter(own).items():
            if word in found:
                places, counts = found[word]
                row[places] += np.minimum(counts, count)
        row *= 2 / np.maximum(lengths + len(own), 1)
    return similarity


def by_bead(document: Document, hypothesis: Sequence[str]) -> tuple[Document, list[str]]:
    """Regroup a document whose segments do not match one to one, and its translation, into one segment per bead.

    A reference without a source joins the bead before it, or the one after it at the start. A hypothesis whose segment
    count differs from the source's is left unchanged, and aligned by its words.
    """
    if not document.beads:
        return document, list(hypothesis)
    rows: list[tuple[list[str], list[str], list[str]]] = []
    counted = len(hypothesis) == len(document.source)
    waiting: list[str] = []
    place = 0
    for source, target in document.parts():
        if source:
            written = list(hypothesis[place : place + len(source)]) if counted else []
            rows.append((list(source), [*waiting, *target], written))
            place, waiting = place + len(source), []
        elif rows:
            rows[-1][1].extend(target)
        else:
            waiting += target
    if not rows:  # no bead has a source
        rows.append(([], waiting, list(hypothesis)))
    sides = [[" ".join(filter(None, texts)) for texts in side] for side in zip(*rows, strict=True)]
    matched = replace(document, source=tuple(sides[0]), target=tuple(sides[1]), beads=())
    return matched, sides[2] if counted else list(hypothesis)
