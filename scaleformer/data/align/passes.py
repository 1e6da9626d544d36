"""Aligns a whole corpus: a first pass by lengths and similar words, a lexicon learned from it, a second pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaleformer.data.align.beads import Bead, Knowledge, Side, align
from scaleformer.data.align.lexicon import Vocabulary, learn, no_lexicon
from scaleformer.formats.blocks import KINDS
from scaleformer.system.bars import with_bar

LABELS = (*KINDS, "inside")  # the kind of block that a segment begins, or "inside" for none
OPEN = (0.7, 0.3)  # share of a text that its translation does not account for: without a lexicon and with one
TRUSTED = 100  # beads from which a lexicon becomes half as reliable as possible
SAME, OTHER = 0.7, -1.0  # prior log-odds of equal and different labels in one bead
PAIRS = [(1, 1), (1, 2), (2, 1)]  # shapes of beads to learn a lexicon from

Segments = tuple[Sequence[str], Sequence[int]]  # texts, and numbers of `LABELS`


def align_corpus(documents: Sequence[tuple[Segments, Segments]], seed: int = 1) -> list[list[Bead]]:
    """The beads of each document, given as the segments of source and target with their labels.

    Runs `align` twice: the second time with the lexicon and the label counts from the first beads of all documents.
    """
    stems: dict[str, int] = {}
    vocabularies = Vocabulary(stems), Vocabulary(stems)
    sides = [tuple(_side(*part, v) for part, v in zip(parts, vocabularies, strict=True)) for parts in documents]
    sizes = [len(v) for v in vocabularies]
    total = [sum(float(pair[side].characters.sum()) for pair in sides) for side in (0, 1)]
    knowledge = Knowledge(
        lexicons=(no_lexicon(sizes[0]), no_lexicon(sizes[1])),
        stems=(vocabularies[0].stem_of(), vocabularies[1].stem_of()),
        frequencies=(vocabularies[0].frequencies(), vocabularies[1].frequencies()),
        structure=np.where(np.eye(len(LABELS), dtype=bool), SAME, OTHER).astype(np.float32),
        open=OPEN[0],
        ratio=total[1] / total[0] if all(total) else 1.0,
    )
    first = [align(source, target, knowledge) for source, target in with_bar(sides, "Aligning, first pass")]
    found = [
        (np.concatenate(source.words[b.i : b.i + b.s]), np.concatenate(target.words[b.j : b.j + b.t]))
        for (source, target), beads in zip(sides, first, strict=True)
        for b in beads
        if (b.s, b.t) in PAIRS and b.score > 0
    ]
    knowledge.lexicons = learn(found, sizes, seed)
    knowledge.structure = _structure(sides, first)
    knowledge.open = openness(len(found))
    return [align(source, target, knowledge) for source, target in with_bar(sides, "Aligning, second pass")]


def openness(beads: int) -> float:
    """The share of a text that a lexicon learned from so many beads does not account for."""
    return OPEN[1] + (OPEN[0] - OPEN[1]) * TRUSTED / (TRUSTED + beads)


def _side(texts: Sequence[str], labels: Sequence[int], vocabulary: Vocabulary) -> Side:
    numbers = np.array(labels, dtype=np.int64)
    return Side(
        [vocabulary.add(text) for text in texts],
        np.array([len(text) for text in texts], dtype=np.float32),
        numbers,
        numbers != LABELS.index("inside"),
    )


def _structure(sides: Sequence[tuple[Side, ...]], corpus: Sequence[Sequence[Bead]]) -> np.ndarray:
    """The log-odds of two labels in one bead, from their counts: (source labels, target labels)."""
    met = np.ones((len(LABELS), len(LABELS)))
    for (source, target), beads in zip(sides, corpus, strict=True):
        for b in beads:
            if b.s and b.t:
                met[source.labels[b.i], target.labels[b.j]] += 1
    odds = np.log(met * met.sum() / (met.sum(1, keepdims=True) * met.sum(0, keepdims=True)))
    return np.clip(odds, -3, 3).astype(np.float32)
