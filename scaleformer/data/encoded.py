"""Corpora as token ids: flat arrays, memory-mapped when they are kept."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from scaleformer.data.errors import cache_errors
from scaleformer.data.formats import Document
from scaleformer.data.tokenizer import SEP, Tokenizer

_CACHE_VERSION = 1
_CHUNK = 256
Encode = Callable[[int, Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class EncodedCorpus:
    """Token ids of documents; segments are numbered through, over all documents.

    source, target                  (tokens,) ids of all segments, each closed by `<sep>`
    source_offsets, target_offsets  (segments + 1,) where each segment begins
    documents                       (documents + 1,) the first segment of each document
    ids                             names of the documents
    """

    source: NDArray[Any]
    target: NDArray[Any]
    source_offsets: NDArray[np.int64]
    target_offsets: NDArray[np.int64]
    documents: NDArray[np.int64]
    ids: Sequence[str]

    @property
    def segments(self) -> int:
        return len(self.source_offsets) - 1

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """(segments,) tokens of each source segment, its `<sep>` among them."""
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """(segments,) tokens of each target segment, its `<sep>` among them."""
        return np.diff(self.target_offsets)

    @property
    def document_of(self) -> NDArray[np.int64]:
        """(segments,) number of the document of each segment."""
        return np.repeat(np.arange(len(self.documents) - 1), np.diff(self.documents))


class _Side:
    """Tokens of one language, written as they come."""

    def __init__(self, file: BinaryIO | None, dtype: type) -> None:
        self.file = file
        self.dtype = dtype
        self.parts: list[NDArray[Any]] = []
        self.offsets = array("q", [0])

    def add(self, segments: list[list[int]]) -> None:
        flat: list[int] = []
        for tokens in segments:
            flat += tokens
            flat.append(SEP)
            self.offsets.append(self.offsets[-1] + len(tokens) + 1)
        part: NDArray[Any] = np.array(flat, dtype=self.dtype)
        if self.file is None:
            self.parts.append(part)
        else:
            self.file.write(part.tobytes())

    def tokens(self) -> NDArray[Any]:
        return np.concatenate(self.parts) if self.parts else np.zeros(0, self.dtype)


def encode_documents(
    documents: Iterable[Document],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    sample: Callable[[int], None] | None = None,
    alpha: float = 0.1,
    folder: Path | None = None,
) -> EncodedCorpus:
    """Encode documents, in memory or (with `folder`) into files there.

    sample: None, or called with each document's number to seed the subword sampling of that document.
    """
    files = [open(folder / f"{side}.bin", "wb") if folder else None for side in ("source", "target")]  # noqa: SIM115
    tokenizers = (source_tokenizer, target_tokenizer)
    sides = [_Side(f, _dtype(t)) for f, t in zip(files, tokenizers, strict=True)]
    bounds = array("q", [0])
    names: list[str] = []
    pending: list[Document] = []

    def flush() -> None:
        for side, tokenizer, name in zip(sides, tokenizers, ("source", "target"), strict=True):
            side.add(tokenizer.encode_batch([text for document in pending for text in getattr(document, name)]))
        pending.clear()

    try:
        for number, document in enumerate(documents):
            names.append(document.id)
            bounds.append(bounds[-1] + len(document.source))
            if sample is None:
                pending.append(document)
                if len(pending) == _CHUNK:
                    flush()
            else:
                sample(number)
                for side, tokenizer, name in zip(sides, tokenizers, ("source", "target"), strict=True):
                    texts = getattr(document, name)
                    side.add([tokenizer.encode(text, sample=True, alpha=alpha) for text in texts])
        flush()
    finally:
        for file in files:
            if file:
                file.close()
    offsets = [np.array(side.offsets, dtype=np.int64) for side in sides]
    documents_ = np.array(bounds, dtype=np.int64)
    if folder is None:
        return EncodedCorpus(sides[0].tokens(), sides[1].tokens(), offsets[0], offsets[1], documents_, names)
    np.save(folder / "source_offsets.npy", offsets[0])
    np.save(folder / "target_offsets.npy", offsets[1])
    np.save(folder / "documents.npy", documents_)
    (folder / "ids.json").write_text(json.dumps(names), encoding="utf-8")
    return _open(folder, tokenizers)


def _dtype(tokenizer: Tokenizer) -> type:
    return np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32


def _open(folder: Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> EncodedCorpus:
    tokens: list[NDArray[Any]] = []
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        path = folder / f"{side}.bin"
        empty = path.stat().st_size == 0
        tokens.append(np.zeros(0, _dtype(tokenizer)) if empty else np.memmap(path, dtype=_dtype(tokenizer), mode="r"))
    return EncodedCorpus(
        tokens[0],
        tokens[1],
        np.load(folder / "source_offsets.npy", mmap_mode="r"),
        np.load(folder / "target_offsets.npy", mmap_mode="r"),
        np.load(folder / "documents.npy"),
        json.loads((folder / "ids.json").read_text(encoding="utf-8")),
    )


def cached_encoding(
    documents: Iterable[Document],
    fingerprint: str,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    cache_dir: str | Path,
) -> EncodedCorpus:
    """The encoding of the documents with that fingerprint, kept under `cache_dir`/encoded by content hash.

    Written into a temporary folder and renamed. Raises DataError when the cache cannot be written.
    """
    key = f"{_CACHE_VERSION} {fingerprint} {source_tokenizer.hash} {target_tokenizer.hash}"
    folder = Path(cache_dir) / "encoded" / hashlib.sha256(key.encode()).hexdigest()[:32]
    tokenizers = (source_tokenizer, target_tokenizer)
    if not folder.is_dir():
        with cache_errors(folder.parent):
            _write(folder, documents, tokenizers)
    return _open(folder, tokenizers)


def _write(folder: Path, documents: Iterable[Document], tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
        encode_documents(documents, *tokenizers, folder=temporary)
        if not folder.is_dir():
            os.rename(temporary, folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster
            raise
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
