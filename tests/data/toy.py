"""Small corpora for tests."""

from __future__ import annotations

import random

import numpy as np

from scaleformer.data.encoded import EncodedCorpus
from scaleformer.vocabulary import SEP


def encoded(lengths: list[list[tuple[int, int]]], counted: bool = False) -> EncodedCorpus:
    """A corpus from (source, target) token counts of each segment of each document, `<sep>` included.

    Every token but `<sep>` is a number of its own, so that one that is lost or doubled shows.
    """
    sides = []
    for side in (0, 1):
        counts = [pair[side] for document in lengths for pair in document]
        offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        tokens = np.arange(10, 10 + offsets[-1], dtype=np.int32)
        tokens[offsets[1:] - 1] = SEP
        sides.append((tokens, offsets))
    documents = np.concatenate(([0], np.cumsum([len(d) for d in lengths], dtype=np.int64)))
    (source, source_offsets), (target, target_offsets) = sides
    ids = [f"d{i}" for i in range(len(lengths))]
    single = np.ones(documents[-1], dtype=np.bool_)
    return EncodedCorpus(source, target, source_offsets, target_offsets, documents, ids, single, counted)


def random_corpus(
    seed: int, documents: int = 30, segments: int = 12, tokens: int = 20, counted: bool = False
) -> EncodedCorpus:
    """Documents of 1 to `segments` segments of 1 to `tokens` tokens a side."""
    rng = random.Random(seed)
    return encoded(
        [
            [(rng.randint(1, tokens), rng.randint(1, tokens)) for _ in range(rng.randint(1, segments))]
            for _ in range(documents)
        ],
        counted,
    )
