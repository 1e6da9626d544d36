"""Leaks: scores of the test segments that stand word for word in the training split, and of those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaleformer.data.quality.training import training_facts
from scaleformer.data.sources import SplitSource
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.positions import SegmentCounts
from scaleformer.evaluation.saved_translations import TranslatedDocument, lines_of
from scaleformer.text.words import spaced


def seen_and_unseen(
    documents: Sequence[TranslatedDocument], training: SplitSource, metrics: Metrics | None = None
) -> dict[str, Any]:
    """Number, s-BLEU and chrF++ of the segments whose source is a source segment of the training split, white space
    aside, and of all others; plain values for JSON. Reads the split once, and keeps nothing of it. Raises DataError
    where the split cannot be read."""
    sources = [spaced(source) for source in lines_of(documents).sources]
    found = training_facts(training, sources).found
    seen = np.array([source in found for source in sources])
    counts = SegmentCounts(documents, metrics or Metrics())
    return {"training": training.where, "seen": counts.scores(seen), "unseen": counts.scores(~seen)}
