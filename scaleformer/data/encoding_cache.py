"""A cache of encoded corpora by content hash: encoded in parts, by several processes, and resumed after a stop."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch.utils.data import IterableDataset

from scaleformer.data.cache import cache_errors, made_once
from scaleformer.data.encoded import EncodedCorpus, encode_documents, merge_encoded, open_encoded, write_encoded
from scaleformer.data.sampler import ready_made, unchanged, worked
from scaleformer.data.streaming import document_windows
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document

_CACHE_VERSION = 3
PART_SEGMENTS = 50_000
_SECONDS_BETWEEN_LINES = 10.0
log = logging.getLogger(__name__)


def cached_encoding(
    documents: Iterable[Document],
    fingerprint: str,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    cache_dir: str | Path,
    processes: int = 1,
    change: Callable[[Document], Document] = unchanged,
) -> EncodedCorpus:
    """The encoding of the documents with that fingerprint, kept under `cache_dir`/encoded by content hash.

    change: applied to each document first; the fingerprint has to cover it.

    The corpus is encoded in parts of PART_SEGMENTS segments, and a part gets its final name once it is complete. After
    a stop, the next call encodes only the missing parts. The folder appears complete or not at all: one process makes
    it while others wait, and one damaged by a crash is made again. The result does not depend on `processes`.
    Raises DataError like the documents, and if the cache cannot be written; then no part is left.
    """
    key = f"{_CACHE_VERSION} {fingerprint} {source_tokenizer.hash} {target_tokenizer.hash}"
    folder = Path(cache_dir) / "encoded" / hashlib.sha256(key.encode()).hexdigest()[:32]
    tokenizers = (source_tokenizer, target_tokenizer)
    make = partial(_write, folder, documents, tokenizers, processes, change)
    return made_once(folder, partial(open_encoded, folder, *tokenizers), make)


def _write(
    folder: Path,
    documents: Iterable[Document],
    tokenizers: tuple[Tokenizer, Tokenizer],
    processes: int,
    change: Callable[[Document], Document],
) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # damaged
    parts = folder.with_name(f".{folder.name}.{PART_SEGMENTS}.parts")  # parts depend on their size
    parts.mkdir(exist_ok=True)
    try:
        writer = _PartWriter(documents, tokenizers, parts, change)
        workers = processes if processes > 1 else 0
        _follow(ready_made(writer, workers))
        whole = parts / "whole"
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        merge_encoded(sorted(parts.glob("[0-9]*[0-9]")), whole)
        for path in whole.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        os.rename(whole, folder)
    except (DataError, OSError):
        shutil.rmtree(parts, ignore_errors=True)
        raise
    shutil.rmtree(parts, ignore_errors=True)


def _follow(written: Iterable[int | DataError]) -> None:
    """Wait for all parts and log progress. Raises a DataError among them, and ValueError if a worker has died."""
    start = said = time.monotonic()
    segments = 0
    try:
        for part in written:
            if isinstance(part, DataError):
                raise part
            segments += part
            now = time.monotonic()
            if now - said > _SECONDS_BETWEEN_LINES:
                said = now
                log.info("%s segments encoded, %s a second", f"{segments:,}", f"{segments / (now - start):,.0f}")
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ValueError(
            f"a process that encodes documents was killed, perhaps for lack of memory ({error}): lower data.num_proc "
            "and start again; encoding will continue from here"
        ) from error


@dataclass(eq=False)
class _PartWriter(IterableDataset[int | DataError]):
    """Writes the missing parts and yields the number of segments of each."""

    documents: Iterable[Document]
    tokenizers: tuple[Tokenizer, Tokenizer]
    folder: Path
    change: Callable[[Document], Document]

    def __iter__(self) -> Iterator[int | DataError]:
        return worked(enumerate(document_windows(self.documents, PART_SEGMENTS)), self._part)

    def _part(self, numbered: tuple[int, list[Document]]) -> int:
        number, documents = numbered
        part = self.folder / f"{number:06d}"
        if not part.is_dir():
            unfinished = part.with_suffix(".part")
            with cache_errors(self.folder.parent):
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                write_encoded(encode_documents([self.change(d) for d in documents], *self.tokenizers), unfinished)
                os.rename(unfinished, part)
        return sum(len(document.shapes) for document in documents)
