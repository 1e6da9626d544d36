"""Corpora: splits as memory-mapped or streamed documents, through Hugging Face `datasets`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
from datasets.arrow_writer import ArrowWriter

from scaleformer.data.cache import made_once
from scaleformer.data.sources import SplitSource, warn_of_one_document
from scaleformer.system.errors import DataError
from scaleformer.system.files import replaced
from scaleformer.text.documents import Document

_FEATURES = datasets.Features(
    {
        "id": datasets.Value("string"),
        "source": [datasets.Value("string")],
        "target": [datasets.Value("string")],
        "beads": [[datasets.Value("int32")]],
    }
)
_CACHE_VERSION = 3


class Corpus(Sequence[Document]):
    """Documents of one split in a memory-mapped Arrow table."""

    def __init__(self, table: datasets.Dataset) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return _document(self.table[index])

    def __iter__(self) -> Iterator[Document]:
        return map(_document, self.table)


def _document(row: dict[str, Any]) -> Document:
    beads = tuple((source, target) for source, target in row["beads"])
    return Document(row["id"], tuple(row["source"]), tuple(row["target"]), beads=beads)


def load_split(source: SplitSource, cache_dir: str | Path) -> Corpus:
    """The documents of a split, read once and kept as an Arrow file under `cache_dir`/corpora by content hash. A file
    damaged by a crash is made again. Raises DataError for faults that the reader finds, a split without documents, or a
    cache that cannot be written."""
    name = hashlib.sha256(f"{_CACHE_VERSION} {source.fingerprint()}".encode()).hexdigest()[:32]
    path = Path(cache_dir) / "corpora" / f"{name}.arrow"

    def make() -> None:
        with replaced(path) as temporary, ArrowWriter(features=_FEATURES, path=str(temporary)) as writer:
            for document in _some(source.read(), source):
                writer.write(
                    {
                        "id": document.id,
                        "source": list(document.source),
                        "target": list(document.target),
                        "beads": [list(bead) for bead in document.beads],
                    }
                )
            writer.finalize()

    corpus = made_once(path, lambda: Corpus(datasets.Dataset.from_file(str(path))), make)
    warn_of_one_document(source, len(corpus), len(corpus[0].source))
    return corpus


class DocumentStream(Iterable[Document]):
    """The documents of a split, read again in every iteration; nothing is kept. Raises DataError like `read`.

    rank, world: yield only the share of one process.
    """

    def __init__(self, source: SplitSource, rank: int = 0, world: int = 1) -> None:
        self.source = source
        self.rank = rank
        self.world = world

    def __iter__(self) -> Iterator[Document]:
        documents = self.source.read(self.rank, self.world)
        return _some(documents, self.source) if self.world == 1 else documents


def _some(documents: Iterator[Document], source: SplitSource) -> Iterator[Document]:
    """The documents. Raises DataError if there is none."""
    empty = True
    for document in documents:
        empty = False
        yield document
    if empty:
        raise DataError(f"{source.where}: no documents in the {source.name} split")
