"""Trains tokenizers on a part of a large corpus, and keeps them by the content of their training text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import sentencepiece as spm

from scaleformer.data.cache import made_once
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.system.files import replaced
from scaleformer.text.documents import Document

_CACHE_VERSION = 3
MOST_SEGMENTS = 400_000  # to train a tokenizer on, unless tokenizer.max_segments is set


class TokenizerText(Iterable[str]):
    """At most `limit` segments of some documents (at least one per side), the same ones in every iteration and on each
    side; 0 means MOST_SEGMENTS. One segment is drawn from every stride of segments, with a fixed seed. Taking every
    tenth would select only headings if all documents had ten segments."""

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
    documents: Iterable[Document], fingerprint: str, config: TokenizerConfig, cache_dir: str, tags: Sequence[str] = ()
) -> tuple[Tokenizer, Tokenizer]:
    """(source, target) tokenizers for documents with that fingerprint, kept in `cache_dir`; the same object if joint.
    The source tokenizer has the `tags`."""

    def train(*sides: str) -> Tokenizer:
        name = f"{fingerprint} {' + '.join(sides)}"
        text = TokenizerText(documents, sides, config.max_segments)
        reads = "source" in sides
        return cached_tokenizer(text, name, config, cache_dir, tags if reads else ())

    if config.joint:
        tokenizer = train("source", "target")
        return tokenizer, tokenizer
    return train("source"), train("target")


def cached_tokenizer(
    texts: Iterable[str], name: str, config: TokenizerConfig, cache_dir: str | Path, tags: Sequence[str] = ()
) -> Tokenizer:
    """Train on `texts`, with pieces for tags, unless `cache_dir`/tokenizers already has the same model.

    name: a fingerprint of the texts, so that a cached model is found without reading them.
    The file is written completely or not at all. One process trains while others wait. A damaged file is made again.
    Raises ValueError like `Tokenizer.train`, and DataError if the cache cannot be written.
    """
    settings = {k: v for k, v in asdict(config).items() if k not in ("joint", "max_segments", "extend")}
    key = [_CACHE_VERSION, spm.__version__, settings, config.max_segments, name, list(tags)]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    path = Path(cache_dir) / "tokenizers" / f"{digest.hexdigest()[:32]}.model"

    def make() -> None:
        tokenizer = Tokenizer.train(texts, **settings, tags=tags)
        with replaced(path) as temporary:
            temporary.write_bytes(tokenizer.proto)

    return made_once(path, lambda: Tokenizer(path.read_bytes()), make)
