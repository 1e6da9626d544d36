"""Batches by the memory that they need, known before: `decoding.memory`.

What a document needs follows from its source and the limits of its translation: the states of all attentions at their
largest, as if every row wrote all that it may, what is held beside them, and what the search holds for each word of the
vocabulary. Neither the weights of the model count nor what the process has beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import accumulate

from torch import nn

from scaleformer.data.batching import pack
from scaleformer.decoding.active import WASTED_STEPS
from scaleformer.decoding.config import DecodingConfig
from scaleformer.model.attention.estimates import Extent
from scaleformer.model.footprint import Footprint
from scaleformer.system.measure import shown_size
from scaleformer.translation.batches import WINDOW, runs
from scaleformer.vocabulary import SEP

SPANS = 16  # segments together whose tokens are counted; of more, all
# Logits of 32 bits that are held at once for a row and a word: of any search, of a sampling, and with more rules.
LOGITS, SAMPLING, RULES = 3, 13, 6
# The C library keeps freed blocks that the next tensors do not fit into: what the process grows by is up to so many
# times what its tensors take (`python -m scripts.measure_foresight`).
HELD = 1.75


class Foresight:
    """What batches need, in bytes. model: one, or an ensemble of those; told: whether anything is told."""

    def __init__(self, model: nn.Module, config: DecodingConfig, told: bool = False) -> None:
        models = getattr(model, "models", [model])
        self.config = config
        self.parts = [Footprint(one) for one in models]
        self.most_target_tokens = min(one.most_target_tokens for one in models)
        rules = told or config.repetition_penalty != 1 or config.no_repeat_ngram_size or config.min_length_ratio
        self.logits = LOGITS + SAMPLING * (config.strategy == "sample") + RULES * bool(rules)
        self.logits += 3 * (len(models) > 1)  # their logarithms, before the mean

    def extent(self, tokens: Sequence[int]) -> Extent:
        """That of a document with these source tokens."""
        sizes, limits, size = [], [], 0
        for token in tokens:
            size += 1
            if token == SEP:
                sizes.append(size)
                size = 0
        limit = lambda n: math.floor(n * self.config.max_length_ratio) + self.config.max_length_offset  # noqa: E731
        limits = [limit(n - 1) + 1 for n in sizes]  # with the separator
        sizes += [size] * bool(size)
        target = sum(limits) + 1
        if not (self.config.match_segments and limits):
            target = limit(len(tokens))
            limits = [max([*limits, limit(size) + 1])] * SPANS
        target = int(min(target, self.most_target_tokens))
        return Extent(len(tokens), target, len(sizes), _spans(sizes, len(tokens)), _spans(limits, target))

    def bytes(self, extent: Extent, documents: int) -> int:
        """Of so many documents beside each other."""
        # Those that are done go on beside the others for a while, in their last segment.
        late = WASTED_STEPS * (documents - 1)
        spans = tuple(min(span + late, extent.target) for span in extent.target_spans)
        extent = extent._replace(target_spans=spans)
        return int(HELD * sum(part.bytes(extent, documents, self.config.rows, self.logits) for part in self.parts))

    def batches(self, sources: Mapping[int, Sequence[int]], limit: int) -> tuple[list[list[int]], str]:
        """Places of documents, as `make_batches` has them but by memory, and what is foreseen, in words.

        Raises ValueError where a document alone needs more than the limit.
        """
        extents = {place: self.extent(tokens) for place, tokens in sources.items()}
        alone = {place: self.bytes(extent, 1) for place, extent in extents.items()}
        most = max(alone, key=alone.__getitem__)
        if alone[most] > limit:
            raise ValueError(
                f"decoding.memory={self.config.memory}: a document of {extents[most].source:,} source tokens alone "
                f"needs {shown_size(alone[most])}: set decoding.memory={shown_size(alone[most], up=True)} or more, or "
                "null; or cut documents by max_tokens"
            )
        batches: list[list[int]] = []
        for window in runs(alone.items(), WINDOW * limit):
            longest_first = sorted(((place, extents[place]) for place in window), key=lambda one: -one[1].source)
            found = pack(longest_first, Extent.join, lambda whole, documents: self.bytes(whole, documents) <= limit)
            batches += sorted(found, key=min)
        wholes = [reduce(Extent.join, (extents[place] for place in batch)) for batch in batches]
        highest = max(self.bytes(whole, len(batch)) for whole, batch in zip(wholes, batches, strict=True))
        number = max(map(len, batches))
        documents = f"{number:,} documents" if number > 1 else "1 document"
        return batches, (
            f"memory: {shown_size(highest)} foreseen for batches of up to {documents} (limit {shown_size(limit)})"
        )


def _spans(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    ends = [0, *accumulate(sizes)]
    spans = [
        max(b - a for a, b in zip(ends, ends[n:], strict=False)) if n < len(ends) else most for n in range(1, SPANS)
    ]
    return (*(min(span, most) for span in spans), most)
