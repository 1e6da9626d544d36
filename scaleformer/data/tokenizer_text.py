"""The text that tokenizers are trained on, of a large corpus a part, and their training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from scaleformer.data.readers.documents import Document
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.data.tokenizer_cache import cached_tokenizer

MOST_SEGMENTS = 400_000  # that a tokenizer is trained on unless tokenizer.max_segments says otherwise


class TokenizerText(Iterable[str]):
    """Segments of some documents, as often as wanted: `limit` at most (but one of each side), the same ones of each
    side; 0 for MOST_SEGMENTS.

    Of every so many segments, counted through all documents, one is taken, at random but always the same one: every
    tenth would be nothing but headings where all documents have ten segments.
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
    """(source, target) of documents with that fingerprint, kept in `cache_dir`; one and the same when joint. The
    source's has the `tags`, and the pieces of `terms`."""

    def train(*sides: str) -> Tokenizer:
        # Joined by a space they are the name of what earlier versions kept, trained on sources alone perhaps.
        name = f"{fingerprint} {' + '.join(sides)}"
        text = TokenizerText(documents, sides, config.max_segments)
        reads = "source" in sides
        return cached_tokenizer(text, name, config, cache_dir, tags if reads else (), terms and reads)

    if config.joint:
        tokenizer = train("source", "target")
        return tokenizer, tokenizer
    return train("source"), train("target")
