"""Documents in batches of like length: by their tokens, or by an estimate of the memory that they need.

What a document needs follows from its source and the limits of its translation: the states of all attentions at their
largest, as if every row wrote all that it may, what is held beside them, and what the search holds for each word of the
vocabulary. Neither the weights of the model count nor what the process has beside them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from typing import TypeVar

import torch
from torch import nn

from scaleformer.data.batching import pack, pack_padded
from scaleformer.decoding.active import WASTED_STEPS
from scaleformer.decoding.config import DecodingConfig
from scaleformer.model.attention.estimates import Extent
from scaleformer.model.footprint import Footprint
from scaleformer.system.display import counted
from scaleformer.system.measure import shown_size
from scaleformer.vocabulary import SEP

T = TypeVar("T")
WINDOW = 16  # batches, in which documents are sorted by length
SPANS = 16  # segments together whose tokens are counted; of more, all
# Logits of 32 bits that are held at once for a row and a word: of any search, of a sampling, and with more rules.
LOGITS, SAMPLING, RULES = 3, 13, 6
# The C library keeps freed blocks that the next tensors do not fit into: what the process grows by is up to so many
# times what its tensors take (`python -m scripts.measure_memory_estimate`).
HELD = 1.75


def make_batches(lengths: Mapping[int, int], config: DecodingConfig) -> list[list[int]]:
    """The places of documents in batches of like length: documents * longest source * rows a document is at most
    batch_tokens, or a document is alone.

    lengths  source tokens, by the places of documents

    Documents are sorted within windows of a few batches, so that they finish about in order. The batch that needs the
    most memory may come late.
    """
    batches: list[list[int]] = []
    for window in runs(lengths.items(), WINDOW * config.batch_tokens // config.rows):
        found = token_budget({place: lengths[place] * config.rows for place in window}, config.batch_tokens)
        batches += sorted(found, key=min)
    return batches


def token_budget(lengths: Mapping[int, int], budget: int) -> Iterator[list[int]]:
    """Places in batches, the longest first: places * greatest length is within the budget, or a place is alone."""
    return pack_padded(sorted(((n, (length,)) for n, length in lengths.items()), key=lambda one: -one[1][0]), budget)


def runs(lengths: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """Things with these lengths in consecutive runs whose lengths sum to at most `most`; a longer thing is alone."""
    return pack(lengths, operator.add, lambda size, _: size <= most)


class MemoryEstimate:
    """What batches need, in bytes. model: one, or an ensemble of those; forced: whether any tokens are forced."""

    def __init__(self, model: nn.Module, config: DecodingConfig, forced: bool = False) -> None:
        models = getattr(model, "models", [model])
        self.config = config
        self.parts = [Footprint(one) for one in models]
        self.most_target_tokens = min(one.most_target_tokens for one in models)
        rules = forced or config.loop_ngram_size or config.min_length_ratio
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
        *limits, last, whole = self.config.limit(torch.tensor([*(n - 1 for n in sizes), size, len(tokens)])).tolist()
        limits = [limit + 1 for limit in limits]  # with the separator
        sizes += [size] * bool(size)
        target = sum(limits) + 1
        if not (self.config.match_segments and limits):
            target, limits = whole, [max([*limits, last + 1])] * SPANS
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
        """Places of documents, as `make_batches` has them but by memory, and the estimate, in words. Raises ValueError
        where a document alone needs more than the limit."""
        extents = {place: self.extent(tokens) for place, tokens in sources.items()}
        alone = {place: self.bytes(extent, 1) for place, extent in extents.items()}
        most = max(alone, key=alone.__getitem__)
        if alone[most] > limit:
            raise ValueError(
                f"decoding.memory_limit={self.config.memory_limit}: a document of {extents[most].source:,} source "
                f"tokens alone needs {shown_size(alone[most])}: set decoding.memory_limit="
                f"{shown_size(alone[most], up=True)} or more, or null; or cut documents by max_tokens"
            )
        batches: list[list[int]] = []
        for window in runs(alone.items(), WINDOW * limit):
            longest_first = sorted(((place, extents[place]) for place in window), key=lambda one: -one[1].source)
            found = pack(longest_first, Extent.join, lambda whole, documents: self.bytes(whole, documents) <= limit)
            batches += sorted(found, key=min)
        wholes = [reduce(Extent.join, (extents[place] for place in batch)) for batch in batches]
        highest = max(self.bytes(whole, len(batch)) for whole, batch in zip(wholes, batches, strict=True))
        documents = counted(max(map(len, batches)), "document")
        how = ", beams over whole documents" * (self.config.strategy == "beam")
        return batches, (
            f"memory: {shown_size(highest)} estimated for batches of up to {documents} (limit {shown_size(limit)}){how}"
        )


def _spans(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    ends = [0, *accumulate(sizes)]
    spans = [
        max(b - a for a, b in zip(ends, ends[n:], strict=False)) if n < len(ends) else most for n in range(1, SPANS)
    ]
    return (*(min(span, most) for span in spans), most)
