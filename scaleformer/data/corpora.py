"""Corpora: splits as memory-mapped or streamed documents, through Hugging Face `datasets`."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
from filelock import FileLock

from scaleformer.data.cache import cache_errors
from scaleformer.data.sources import SplitSource, warn_of_one_document
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document

_FEATURES = datasets.Features(
    {
        "id": datasets.Value("string"),
        "source": [datasets.Value("string")],
        "target": [datasets.Value("string")],
        "beads": [[datasets.Value("int32")]],
    }
)
_CACHE_VERSION = 2


class Corpus(Sequence[Document]):
    """Documents of one split in a memory-mapped Arrow table."""

    def __init__(self, table: datasets.Dataset) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        return _document(self.table[index])

    def __iter__(self) -> Iterator[Document]:
        return map(_document, self.table)


def _document(row: dict[str, Any]) -> Document:
    beads = tuple((source, target) for source, target in row["beads"])
    return Document(row["id"], tuple(row["source"]), tuple(row["target"]), beads=beads)


def load_split(source: SplitSource, cache_dir: str | Path) -> Corpus:
    """The documents of a split, read once and kept as an Arrow file under `cache_dir`/corpora by content hash. A file
    damaged by a crash is made again.

    Raises DataError for faults that the reader finds, a split without documents, or a cache that cannot be written.
    """
    content = f"{_CACHE_VERSION} {source.fingerprint()}"
    folder = Path(cache_dir) / "corpora" / hashlib.sha256(content.encode()).hexdigest()[:32]
    kept = folder.is_dir()
    try:
        return _load(source, content, folder)
    except Exception:
        if not kept:
            raise
    with cache_errors(folder.parent), FileLock(folder.with_suffix(".lock")):  # one process makes it, others wait
        with suppress(Exception):
            return _load(source, content, folder)
        shutil.rmtree(folder, ignore_errors=True)
        return _load(source, content, folder)


def _load(source: SplitSource, content: str, folder: Path) -> Corpus:
    """Raises DataError also for a damaged cache."""
    arguments = {"source": source, "content": content}
    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        table = datasets.Dataset.from_generator(_rows, features=_FEATURES, cache_dir=str(folder), gen_kwargs=arguments)
    except Exception as error:
        raise _own_error(error, folder) from None
    finally:
        if not bars:
            datasets.enable_progress_bars()
    assert isinstance(table, datasets.Dataset)
    corpus = Corpus(table)
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


def _rows(source: SplitSource, content: str) -> Iterator[dict[str, Any]]:
    """Rows of a split, at least one; `datasets` includes `content` in its hash."""
    for document in _some(source.read(), source):
        sides = {"source": list(document.source), "target": list(document.target)}
        yield {"id": document.id, **sides, "beads": [list(bead) for bead in document.beads]}


def _own_error(error: BaseException, cache: Path) -> BaseException:
    """The DataError or write error within the exceptions that `datasets` wraps around it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DataError):
            return cause
        if isinstance(cause, OSError):
            return DataError(f"{cache}: cannot write the cache ({cause.strerror or cause}): set data.cache_dir")
        cause = cause.__cause__ or cause.__context__
    return error
