"""Documents in batches of like length."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from scaleformer.data.batching import pack, pack_padded
from scaleformer.decoding.config import DecodingConfig
from scaleformer.vocabulary import PAD, SEP

T = TypeVar("T")
WINDOW = 16  # batches, in which documents are sorted by length


def make_batches(lengths: Mapping[int, int], config: DecodingConfig) -> list[list[int]]:
    """Places of documents, so many that places * longest * rows a document is in batch_tokens.

    Of like length, but in windows of a few batches, by the first place: so that documents finish about in order.
    The longest batch is not the first one: what it needs of memory shows when it comes.
    """
    batches: list[list[int]] = []
    for window in runs(lengths.items(), WINDOW * config.batch_tokens // config.rows):
        found = token_budget({place: lengths[place] * config.rows for place in window}, config.batch_tokens)
        batches += sorted(found, key=min)
    return batches


def token_budget(lengths: Mapping[int, int], budget: int) -> Iterator[list[int]]:
    """Places in batches, the longest first, so that number * longest is in the budget, or one alone."""
    return pack_padded(sorted(((n, (length,)) for n, length in lengths.items()), key=lambda one: -one[1][0]), budget)


def runs(lengths: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """What has these lengths, in runs of at most so much together, or of one."""
    return pack(lengths, operator.add, lambda size, _: size <= most)


def pad(sources: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """source, mask and segments (B, S) as `scaleformer.batch.Batch` has them."""
    length = max(len(tokens) for tokens in sources)
    source = torch.tensor([[*tokens, *[PAD] * (length - len(tokens))] for tokens in sources])
    mask = torch.arange(length) < torch.tensor([len(tokens) for tokens in sources])[:, None]
    separators = (source == SEP).long()
    return source.to(device), mask.to(device), (separators.cumsum(1) - separators).to(device)
