"""Selects the training text of tokenizers, a part of a large corpus, and trains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.data.tokenizer_cache import cached_tokenizer
from scaleformer.text.documents import Document

MOST_SEGMENTS = 400_000  # to train a tokenizer on, unless tokenizer.max_segments is set


class TokenizerText(Iterable[str]):
    """At most `limit` segments of some documents (at least one per side), the same ones in every iteration and on each
    side; 0 means MOST_SEGMENTS.

    One segment is drawn from every stride of segments, with a fixed seed. Taking every tenth would select only headings
    if all documents had ten segments.
    """

    def __init__(self, documents: Iterable[Document], sides: tuple[str, ...], limit: int) -> None:
        self.documents = documents
        self.sides = sides
        self.limit = limit or MOST_SEGMENTS

    def __iter__(self) -> Iterator[str]:
        count = sum(_size(document) for document in self.documents)
        stride = -(-count // max(1, self.limit // len(self.sides)))
        places = np.arange(0, count, max(1, stride))
        places += np.random.default_rng(0).integers(np.minimum(stride, count - places))  # the last stride may be short
        seen = 0
        for document in self.documents:
            first, last = np.searchsorted(places, [seen, seen + _size(document)])
            chosen = (places[first:last] - seen).tolist()
            for side in self.sides:
                segments = getattr(document, side)
                yield from (segments[place] for place in chosen if place < len(segments))
            seen += _size(document)


def _size(document: Document) -> int:
    return max(len(document.source), len(document.target))


def train_tokenizers(
    documents: Iterable[Document],
    fingerprint: str,
    config: TokenizerConfig,
    cache_dir: str,
    tags: Sequence[str] = (),
    terms: bool = False,
) -> tuple[Tokenizer, Tokenizer]:
    """(source, target) tokenizers for documents with that fingerprint, kept in `cache_dir`; the same object if joint.
    The source tokenizer has the `tags` and the pieces for `terms`."""

    def train(*sides: str) -> Tokenizer:
        name = f"{fingerprint} {' + '.join(sides)}"
        text = TokenizerText(documents, sides, config.max_segments)
        reads = "source" in sides
        return cached_tokenizer(text, name, config, cache_dir, tags if reads else (), terms and reads)

    if config.joint:
        tokenizer = train("source", "target")
        return tokenizer, tokenizer
    return train("source"), train("target")
