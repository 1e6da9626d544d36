"""Documents from `datasets.load_dataset`: the Hugging Face Hub, or files that one of its builders reads."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from scaleformer.data.config import HubConfig, MissingSplit
from scaleformer.formats.rows import Row, cell, document_name, grouped
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document

# no permission, no folder, read-only, full disk: typical of environments without a HOME
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EROFS, errno.ENOSPC)


def hub_documents(
    config: HubConfig, split: str, streaming: bool = False, rank: int = 0, world: int = 1
) -> Iterator[Document]:
    """Documents of a split, in order, for process `rank` of `world`; each document belongs to exactly one process.

    streaming: read rows on demand instead of downloading the whole split first. If each row is a document and `world`
    divides the number of files, each process reads only its own files. Raises DataError: not found, no network, no
    place for the cache, no such column, wrong types, a row without segments or with different numbers on both sides.
    """
    # Imported on first use, since most commands do without it, and loading it takes seconds.
    import datasets
    from datasets.distributed import split_dataset_by_node

    with _own_errors(config, f"the split {split!r}"):
        rows = datasets.load_dataset(
            config.name, config.subset, data_files=config.data_files, split=split, streaming=streaming
        )
        place = split
        if not config.document and world > 1:
            place = f"{split}/{rank} of {world}"
            rows, rank, world = split_dataset_by_node(rows, rank=rank, world_size=world), 0, 1
        documents = grouped(_rows(config, place, rows), named=bool(config.document))
        yield from islice(documents, rank, None, world)


def hub_fingerprint(config: HubConfig) -> str:
    """Identifies the content of a data set without reading it: the hash of its builder, files and revision."""
    import datasets

    with _own_errors(config, "its description"):
        builder = datasets.load_dataset_builder(config.name, config.subset, data_files=config.data_files)
    return f"{builder.hash} {Path(builder.cache_dir).parts[-3:]}"


@contextmanager
def _own_errors(config: HubConfig, what: str) -> Iterator[None]:
    """Turn errors of `datasets`, also during iteration, into MissingSplit."""
    from datasets.exceptions import DatasetsError

    if not config.name:
        raise DataError("data.format=hub needs data.hub.name: the id of a data set")
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:  # the split is not at fault
            where = error.filename or "the cache"
            raise DataError(f"{where}: {error.strerror}: set HF_HOME to a writable folder for the cache") from error
        reason = " ".join(str(error).split())[:300]
        raise MissingSplit(f"{config.name}: cannot load {what}: {reason}") from error


def _rows(config: HubConfig, split: str, rows: Iterable[Any]) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        where = f"{config.name}[{split}]:{number}"
        source, target = (cell(row, column, where) for column in (config.source, config.target))
        name = document_name(row, config.document, where) if config.document else f"{split}/{number}"
        yield Row(where, name, source, target)
