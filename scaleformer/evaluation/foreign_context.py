"""Segments of one document among segments of others: what a translation loses without its own context."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from scaleformer.data.readers.documents import Document
from scaleformer.translation.translations import DocumentHypothesis, Translation

CONTEXTS = ("own", "foreign")


class ForeignContext:
    """All segments in a random order, cut into documents with the segment counts of the real ones.

        foreign = ForeignContext(documents, seed=1)
        translations = foreign.restore(translator.translate_documents(foreign.sources))

    sources    the shuffled documents. A segment may have one of its own document near it by chance.
    restore    their translations as those of the real documents. A document is finished where every shuffled one that
               holds a segment of it is. Scores and log probabilities are NaN: nothing was searched for these documents.
    Raises ValueError: fewer than two documents.
    """

    def __init__(self, documents: Sequence[Document], seed: int = 1) -> None:
        if len(documents) < 2:
            raise ValueError(
                f"context=foreign: {len(documents)} document, wanted two or more that lend each other context"
            )
        self._counts = [len(d.source) for d in documents]
        places = [(n, m) for n, count in enumerate(self._counts) for m in range(count)]
        self._order = random.Random(seed).sample(places, len(places))
        order = iter(self._order)
        self.sources = [tuple(documents[n].source[m] for n, m in islice(order, count)) for count in self._counts]

    def restore(self, translations: Sequence[Translation]) -> list[Translation]:
        """Segments that a translation lacks are empty."""
        segments = [[""] * count for count in self._counts]
        finished = [True] * len(self._counts)
        cut: list[list[int]] = [[] for _ in self._counts]
        order = iter(self._order)
        for translation, count in zip(translations, self._counts, strict=True):
            for m, (document, place) in enumerate(islice(order, count)):
                segments[document][place] = translation.segments[m] if m < len(translation.segments) else ""
                finished[document] &= translation.finished
                cut[document] += [place] if m in translation.cut else []
        nan = float("nan")
        return [
            Translation((DocumentHypothesis(tuple(s), nan, nan, f, cut=tuple(sorted(c))),), len(s), t.source_tokens)
            for s, f, c, t in zip(segments, finished, cut, translations, strict=True)
        ]
