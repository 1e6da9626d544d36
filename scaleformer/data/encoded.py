"""Documents as token ids, in memory or memory-mapped."""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.text.documents import Document
from scaleformer.vocabulary import SEP, separators

_CHUNK = 256


@dataclass(frozen=True)
class EncodedCorpus:
    """Token ids of documents; segments are numbered across all documents.

    A bead of segments that do not match one to one is one segment here, with several or none on either side.

    source, target                  (tokens,) ids of all segments, each with its separator
    source_offsets, target_offsets  (segments + 1,) where each segment begins
    documents                       (documents + 1,) the first segment of each document
    ids                             names of the documents
    single                          (segments,) bool, whether it has at most one segment on either side
    tag                             the id before the first segment of every example, None for none
    """

    source: NDArray[Any]
    target: NDArray[Any]
    source_offsets: NDArray[np.int64]
    target_offsets: NDArray[np.int64]
    documents: NDArray[np.int64]
    ids: Sequence[str]
    single: NDArray[np.bool_]
    tag: int | None = None

    @property
    def segments(self) -> int:
        return len(self.source_offsets) - 1

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """(segments,) tokens of each source segment, its separator included."""
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """(segments,) tokens of each target segment, its separators included."""
        return np.diff(self.target_offsets)

    @property
    def ends(self) -> tuple[int, int]:
        """Tokens of a source and of a target besides the segments: the `</s>` and the tag."""
        return 1 + (self.tag is not None), 1

    @property
    def document_of(self) -> NDArray[np.int64]:
        """(segments,) number of the document of each segment."""
        return np.repeat(np.arange(len(self.documents) - 1), np.diff(self.documents))


class Names(Sequence[str]):
    """Texts in one array of UTF-8 bytes, so that millions of names need not be in memory."""

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self._data = data
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"name {index} of {len(self)}")
        place = index % len(self)
        return self._data[self._offsets[place] : self._offsets[place + 1]].tobytes().decode()


class _Side:
    """The tokens of one language, collected as they arrive."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.parts: list[NDArray[Any]] = [np.zeros(0, _dtype(tokenizer))]
        self.offsets = array("q", [0])

    def add(self, segments: Sequence[str], beads: Iterable[tuple[int, Sequence[tuple[int, ...]]]]) -> None:
        """Add segments; for each bead, its number of segments and the separators of each. Separators beyond that number
        stand for empty segments."""
        flat: list[int] = []
        rest = iter(self.tokenizer.encode_batch(segments))
        for count, ends in beads:
            before = len(flat)
            for number, end in enumerate(ends):
                if number < count:
                    flat += next(rest)
                flat += end
            self.offsets.append(self.offsets[-1] + len(flat) - before)
        self.parts.append(np.array(flat, dtype=self.parts[0].dtype))


def encode_documents(
    documents: Iterable[Document], source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> EncodedCorpus:
    """Encode documents, in memory."""
    ours, theirs = _Side(source_tokenizer), _Side(target_tokenizer)
    bounds, single, names, rest = array("q", [0]), array("b"), list[str](), iter(documents)
    while some := list(islice(rest, _CHUNK)):
        for document in some:
            names.append(document.id)
            bounds.append(bounds[-1] + len(document.shapes))
        shapes = [shape for document in some for shape in document.shapes]
        ours.add([x for d in some for x in d.source], [(source, ((SEP,),) * source) for source, _ in shapes])
        theirs.add([x for d in some for x in d.target], [(shape[1], separators(*shape)) for shape in shapes])
        single.extend(max(shape) <= 1 for shape in shapes)
    source, target = (np.concatenate(side.parts) for side in (ours, theirs))
    offsets, targets, starts = (np.array(some, dtype=np.int64) for some in (ours.offsets, theirs.offsets, bounds))
    return EncodedCorpus(source, target, offsets, targets, starts, names, np.array(single, dtype=np.bool_))


def write_encoded(corpus: EncodedCorpus, folder: Path) -> None:
    """Write a corpus into files of a folder."""
    packed = [name.encode() for name in corpus.ids]
    ids = np.frombuffer(b"".join(packed), np.uint8), np.cumsum([0, *map(len, packed)], dtype=np.int64)
    items = {"source": corpus.source, "target": corpus.target, "ids": ids[0], "single": corpus.single}
    for name, values in items.items():
        values.tofile(folder / f"{name}.bin")
    np.save(folder / "ids_offsets.npy", ids[1])
    for name in ("source_offsets", "target_offsets", "documents"):
        np.save(folder / f"{name}.npy", getattr(corpus, name))


def _dtype(tokenizer: Tokenizer) -> type:
    return np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32


def open_encoded(folder: Path, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> EncodedCorpus:
    """The corpus that `write_encoded` wrote into a folder, memory-mapped. Raises OSError, EOFError or ValueError if a
    file is missing, truncated, or does not match the length of the others."""
    dtypes = {"source": _dtype(source_tokenizer), "target": _dtype(target_tokenizer)}
    source, target = (_mapped(folder / f"{side}.bin", dtype) for side, dtype in dtypes.items())
    offsets = [np.load(folder / f"{name}_offsets.npy", mmap_mode="r") for name in ("source", "target", "ids")]
    ids, documents = _mapped(folder / "ids.bin", np.uint8), np.load(folder / "documents.npy")
    single = _mapped(folder / "single.bin", np.bool_)
    wanted = [int(numbers[-1]) for numbers in (*offsets, documents)]
    if [len(source), len(target), len(ids), len(single)] != wanted or len(offsets[2]) != len(documents):
        raise ValueError(f"{folder}: the encoded corpus is damaged: remove it")
    names = Names(ids, offsets[2])
    return EncodedCorpus(source, target, offsets[0], offsets[1], documents, names, single)


def _mapped(path: Path, dtype: type) -> NDArray[Any]:
    if path.stat().st_size == 0:  # mmap refuses it
        return np.zeros(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def merge_encoded(parts: Sequence[Path], folder: Path) -> None:
    """Concatenate the corpora of several folders into one corpus in `folder`."""
    for name in ("source", "target", "ids", "single"):
        with open(folder / f"{name}.bin", "wb") as whole:
            for part in parts:
                with open(part / f"{name}.bin", "rb") as file:
                    shutil.copyfileobj(file, whole, 1 << 20)
    for name in ("source_offsets", "target_offsets", "ids_offsets", "documents"):
        numbers = [np.zeros(1, dtype=np.int64)]
        for part in parts:
            numbers.append(np.load(part / f"{name}.npy")[1:] + numbers[-1][-1])
        np.save(folder / f"{name}.npy", np.concatenate(numbers))
