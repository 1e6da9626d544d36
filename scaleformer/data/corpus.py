"""Corpora: the splits of a data set as memory-mapped or streamed documents, through Hugging Face `datasets`."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import datasets

from scaleformer.data.config import DataConfig, HubConfig
from scaleformer.data.errors import DataError
from scaleformer.data.formats import Document, assign_splits, read_jsonl, read_text_pair
from scaleformer.data.hub import hub_documents
from scaleformer.data.synthetic import SyntheticConfig, generate

SPLITS = ("train", "valid", "test")
_FEATURES = datasets.Features(
    {
        "id": datasets.Value("string"),
        "source": [datasets.Value("string")],
        "target": [datasets.Value("string")],
    }
)
_CACHE_VERSION = 1


class Corpus(Sequence[Document]):
    """Documents of one split in a memory-mapped Arrow table."""

    def __init__(self, table: datasets.Dataset) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        return _document(self.table[index])

    def __iter__(self) -> Iterator[Document]:
        return map(_document, self.table)


def _document(row: dict[str, Any]) -> Document:
    return Document(row["id"], tuple(row["source"]), tuple(row["target"]))


@dataclass(frozen=True)
class SplitSource:
    """Where the documents of one split come from: everything that reading them needs, and that decides them.

    files       jsonl: one; text: source, target and, with boundaries="ids", the names
    part        "" or the split of a single file that this is
    hub_split   hub: the data set's own name of the split
    """

    name: str
    format: str
    files: tuple[str, ...] = ()
    boundaries: str = "blank"
    part: str = ""
    holdout: tuple[float, float] = (0.0, 0.0)
    synthetic: SyntheticConfig | None = None
    hub: HubConfig | None = None
    hub_split: str = ""

    @property
    def where(self) -> str:
        """The files, for messages."""
        return ", ".join(self.files) or (self.hub.name if self.hub else self.format)

    def read(self) -> Iterator[Document]:
        """The documents from the start; raises DataError at the first fault."""
        if self.synthetic is not None:
            return generate(self.synthetic, self.name)
        if self.hub is not None:
            return hub_documents(self.hub, self.hub_split)
        if self.format == "text":
            return read_text_pair(self.files[0], self.files[1], self.boundaries, *self.files[2:])
        return self._read_part() if self.part else read_jsonl(self.files[0])

    def _read_part(self) -> Iterator[Document]:
        count = sum(1 for _ in read_jsonl(self.files[0]))
        try:
            parts = assign_splits(count, *self.holdout)
        except DataError as error:
            raise DataError(f"{self.files[0]}: {error} (data.holdout)") from None
        for part, document in zip(parts, read_jsonl(self.files[0]), strict=True):
            if part == self.part:
                yield document

    def fingerprint(self) -> str:
        """sha256 of the content of the files and of the settings (not the files' names); else of the documents."""
        digest = hashlib.sha256(repr(replace(self, files=())).encode())
        for path in self.files:
            digest.update(_file_hash(path))
        if not self.files:
            for document in self.read():
                digest.update(document.to_json().encode())
        return digest.hexdigest()


def _file_hash(path: str) -> bytes:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return digest.digest()


def split_sources(config: DataConfig) -> dict[str, SplitSource]:
    """The splits that a configuration names: of train, valid and test those that there are, and for one file "all".

    Raises DataError: no such path, no split in the folder, ambiguous or missing files.
    """
    if config.format == "synthetic":
        return {split: SplitSource(split, "synthetic", synthetic=config.synthetic) for split in SPLITS}
    if config.format == "hub":
        names = {"train": config.hub.train, "valid": config.hub.valid, "test": config.hub.test}
        return {s: SplitSource(s, "hub", hub=config.hub, hub_split=name) for s, name in names.items() if name}
    if config.path is None:
        raise DataError(f"data.format={config.format} needs data.path: a file or a folder")
    path = Path(config.path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder (data.path)")
    return _jsonl_sources(path, config) if config.format == "jsonl" else _text_sources(path, config)


def _jsonl_sources(path: Path, config: DataConfig) -> dict[str, SplitSource]:
    if path.is_file():
        whole = SplitSource("all", "jsonl", (str(path),))
        shares = {"train": 1.0, "valid": config.holdout[0], "test": config.holdout[1]}
        parts = {s: replace(whole, name=s, part=s, holdout=config.holdout) for s in SPLITS if shares[s] > 0}
        return {"all": whole, **parts}
    found = {split: _one_of(path, f"{split}.jsonl") for split in SPLITS}
    sources = {split: SplitSource(split, "jsonl", (file,)) for split, file in found.items() if file is not None}
    if not sources:
        raise DataError(f"{path}: none of train.jsonl, valid.jsonl, test.jsonl (or .jsonl.gz): {_listing(path)}")
    return sources


def _text_sources(path: Path, config: DataConfig) -> dict[str, SplitSource]:
    if not path.is_dir():
        raise DataError(f"{path}: data.format=text wants a folder with train.{config.source_suffix} and so on")
    sources = {}
    for split in SPLITS:
        names = [f"{split}.{config.source_suffix}", f"{split}.{config.target_suffix}"]
        if config.boundaries == "ids":
            names.append(f"{split}.ids")
        files = [_one_of(path, name) for name in names]
        if files[0] is None and files[1] is None:
            continue
        if None in files:
            raise DataError(f"{path}: {names[files.index(None)]} is missing beside the other files of the split")
        paths = tuple(file for file in files if file is not None)
        sources[split] = SplitSource(split, "text", paths, boundaries=config.boundaries)
    if not sources:
        raise DataError(
            f"{path}: no train.{config.source_suffix} with train.{config.target_suffix} (or valid, test; or .gz); "
            f"data.source_suffix and data.target_suffix name the endings: {_listing(path)}"
        )
    return sources


def _one_of(folder: Path, name: str) -> str | None:
    present = [str(path) for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(present) > 1:
        raise DataError(f"{folder}: both {name} and {name}.gz are there: remove one")
    return present[0] if present else None


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return f"the folder holds {', '.join(names[:8]) or 'nothing'}{' ...' if len(names) > 8 else ''}"


def load_split(source: SplitSource, cache_dir: str | Path) -> Corpus:
    """The documents of a split, read once and kept as an Arrow file under `cache_dir`/corpora by content hash.

    Raises DataError: whatever the reader finds, a split without documents, a cache that cannot be written.
    """
    folder = Path(cache_dir) / "corpora"
    arguments = {"source": source, "content": f"{_CACHE_VERSION} {source.fingerprint()}"}
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
    return Corpus(table)


class DocumentStream(Iterable[Document]):
    """The documents of a split, read anew each time it is iterated; nothing is kept. Raises DataError as `read`."""

    def __init__(self, source: SplitSource) -> None:
        self.source = source
        self.rows = datasets.IterableDataset.from_generator(
            _rows, features=_FEATURES, gen_kwargs={"source": source, "content": ""}
        )

    def __iter__(self) -> Iterator[Document]:
        return map(_document, self.rows)


def _rows(source: SplitSource, content: str) -> Iterator[dict[str, Any]]:
    """Rows of a split, at least one; `content` is there to be hashed by `datasets`."""
    empty = True
    for document in source.read():
        empty = False
        yield {"id": document.id, "source": list(document.source), "target": list(document.target)}
    if empty:
        raise DataError(f"{source.where}: no documents in the {source.name} split")


def _own_error(error: BaseException, cache: Path) -> BaseException:
    """The DataError or the write error inside the exceptions that `datasets` wraps around it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DataError):
            return cause
        if isinstance(cause, OSError):
            return DataError(f"{cache}: cannot write the cache ({cause.strerror or cause}): set data.cache_dir")
        cause = cause.__cause__ or cause.__context__
    return error


def join_documents(documents: Iterable[Document], segments: int, seed: int = 1) -> list[Document]:
    """Documents of `segments` segments each, drawn from all segments of the documents in random order.

    The segments left over at the end are not enough for a document and are left out.
    """
    pairs = [pair for document in documents for pair in zip(document.source, document.target, strict=True)]
    random.Random(seed).shuffle(pairs)
    joined = []
    for start in range(0, len(pairs) - segments + 1, segments):
        source, target = zip(*pairs[start : start + segments], strict=True)
        joined.append(Document(f"joined-{segments}/{start // segments}", source, target))
    return joined
