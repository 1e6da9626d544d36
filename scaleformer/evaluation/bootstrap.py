"""How much a number depends on which documents were drawn: the bootstrap over documents [Koehn 2004, section 3]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

SAMPLES, SEED = 500, 12345


def interval(counts: NDArray[np.generic], score: Callable[[Sequence[float]], float]) -> list[float] | None:
    """The 95% confidence interval of a score, [lowest, highest]; None for a single document, which says nothing of
    others. Every call draws the same documents.

    counts  (documents, k): what each document adds to the k sums from which `score` is computed
    """
    values, documents = counts.astype(np.float64), len(counts)
    if documents < 2:
        return None
    random = np.random.default_rng(SEED)
    found = []
    for _ in range(SAMPLES):
        times = np.bincount(random.integers(documents, size=documents), minlength=documents)
        found.append(score((times @ values).tolist()))
    return [float(bound) for bound in np.percentile(found, (2.5, 97.5))]
