"""The sources of each split: the files and settings that a configuration names."""

from __future__ import annotations

import hashlib
import json
import random
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from scaleformer.data.config import DataConfig, HubConfig, MissingSplit
from scaleformer.data.hub import hub_documents, hub_fingerprint
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.text_pairs import read_text_pair
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from scaleformer.text.languages import is_code

SPLITS = ("train", "valid", "test")
NO_LANGUAGES = ("src", "tgt", "trg", "txt", "ref", "raw")  # as suffixes of files, though some are codes of ISO 639
ONE_DOCUMENT = 50  # lines; more of them are rarely meant to be one document


@dataclass(frozen=True)
class SplitSource:
    """The source of one split: all that is needed to read its documents and that determines them.

    files       jsonl: one file, or the shards in order; text: source, target and, with boundaries="ids", the names
    part        the split of a single file that this is, else ""
    hub_split   hub: the data set's name of the split
    streaming   hub: read rows on demand instead of downloading the whole split first
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
    streaming: bool = field(default=False, repr=False)  # changes how, not what is read: not in the fingerprint

    @property
    def where(self) -> str:
        """The files, for messages."""
        return ", ".join(self.files) or (self.hub.name if self.hub else self.format)

    def read(self, rank: int = 0, world: int = 1) -> Iterator[Document]:
        """The documents of process `rank` of `world`, from the start; each document belongs to exactly one process.

        Whole shards are dealt out if `world` divides their number. Otherwise all processes read everything and keep
        every world-th document. Raises DataError at the first fault.
        """
        if self.format == "jsonl" and not self.part and len(self.files) % world == 0:
            return chain.from_iterable(read_jsonl(path) for path in self.files[rank::world])
        if self.hub is not None:
            return hub_documents(self.hub, self.hub_split, self.streaming, rank, world)
        return islice(self._read_all(), rank, None, world)

    def _read_all(self) -> Iterator[Document]:
        if self.synthetic is not None:
            return generate(self.synthetic, self.name)
        if self.format == "text":
            return read_text_pair(self.files[0], self.files[1], self.boundaries, *self.files[2:])
        return self._read_part() if self.part else chain.from_iterable(map(read_jsonl, self.files))

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
        """sha256 of the settings and of the files' contents (not their names), or of the documents if there are no
        files."""
        digest = hashlib.sha256(repr(replace(self, files=())).encode())
        for path in self.files:
            digest.update(_file_hash(path))
        if self.hub is not None and self.streaming:
            digest.update(hub_fingerprint(self.hub).encode())
        elif not self.files:
            for document in self.read():
                digest.update(document.to_json().encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class JoinedSource(SplitSource):
    """A split of several corpora, one after the other; documents are named CORPUS/NAME."""

    parts: tuple[tuple[str, SplitSource], ...] = ()

    @property
    def where(self) -> str:
        return "; ".join(f"{name}: {part.where}" for name, part in self.parts)

    def _read_all(self) -> Iterator[Document]:
        for name, part in self.parts:
            for document in part.read():
                yield replace(document, id=f"{name}/{document.id}")

    def fingerprint(self) -> str:
        prints = [[name, part.fingerprint()] for name, part in self.parts]
        return hashlib.sha256(json.dumps(prints).encode()).hexdigest()


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
    """The splits that a configuration names: those of train, valid and test that exist, and "all" for a single file.
    For several corpora, every split that at least one of them has. Raises DataError: no such path, no split in the
    folder, ambiguous or missing files, or one of several corpora has no training split."""
    if config.parts:
        return _joined_sources(config)
    if config.format == "synthetic":
        return {split: SplitSource(split, "synthetic", synthetic=config.synthetic) for split in SPLITS}
    if config.format == "hub":
        names = {"train": config.hub.train, "valid": config.hub.valid, "test": config.hub.test}
        return {
            s: SplitSource(s, "hub", hub=config.hub, hub_split=name, streaming=config.streaming and s == "train")
            for s, name in names.items()
            if name
        }
    if config.path is None:
        raise DataError(f"data.format={config.format} needs data.path: a file or a folder")
    path = Path(config.path)
    try:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder (data.path)")
        if not path.is_file() and not path.is_dir():
            raise DataError(f"{path}: can be read only once, but training reads it several times: write it to a file")
        return _jsonl_sources(path, config) if config.format == "jsonl" else _text_sources(path, config)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error} (data.path)") from error


def assign_splits(count: int, valid: float, test: float, seed: int = 1) -> list[str]:
    """The split of each of `count` documents: a seeded draw with exact shares; at least one document for each share
    above 0, and one for train unless the shares sum to 1. Raises DataError if there are too few documents."""
    numbers = {
        name: max(1, round(share * count)) if share > 0 else 0 for name, share in (("valid", valid), ("test", test))
    }
    none_left = valid + test > 1 - 1e-9
    if none_left and valid and test:  # both may be rounded up
        numbers["test"] = max(1, count - numbers["valid"])
    if sum(numbers.values()) + (not none_left) > count:
        raise DataError(f"{count} documents are too few to set {' and '.join(n for n in numbers if numbers[n])} aside")
    rng = random.Random(f"scaleformer splits {seed}")
    draws = [rng.random() for _ in range(count)]
    splits = ["train"] * count
    ranking = iter(sorted(range(count), key=lambda i: draws[i]))
    for name, number in numbers.items():
        for _ in range(number):
            splits[next(ranking)] = name
    return splits


def segmentation(config: DataConfig) -> dict[str, str | None]:
    """What is known about a corpus's segments: their grain (sentence | paragraph | none, for raw documents) and the
    languages of both sides, from the settings, the file suffixes and the report next to a prepared corpus."""
    found: dict[str, str | None] = dict.fromkeys(("grain", "source_language", "target_language"))
    if config.format == "text":
        suffixes = {"source_language": config.source_suffix, "target_language": config.target_suffix}
        found |= {name: code for name, code in suffixes.items() if is_code(code) and code not in NO_LANGUAGES}
    report = Path(config.path or "") / "report.json"
    if config.format == "jsonl" and report.is_file():
        with suppress(ValueError, OSError, KeyError, TypeError, AttributeError):
            settings = json.loads(report.read_text(encoding="utf-8"))["settings"]
            found |= {name: settings.get(name) for name in ("source_language", "target_language")}
            raw = settings.get("split") or "sentence" if settings["format"] == "raw" else None
            found["grain"] = settings.get("grain") or raw  # of a corpus that was prepared twice, from the first time
    return found | ({"target_language": config.target_language} if config.target_language else {})


def warn_of_one_document(source: SplitSource, documents: int, segments: int) -> None:
    """Warn if many lines of text form a single document because no blank line ends one."""
    if source.format == "text" and source.boundaries == "blank" and documents == 1 and segments > ONE_DOCUMENT:
        warnings.warn(
            f"{source.where}: all {segments:,} lines are one document, because no blank line ends one: set "
            "data.boundaries=lines (each line is a document) or data.boundaries=ids (a file names the documents)",
            stacklevel=3,
        )


def _joined_sources(config: DataConfig) -> dict[str, SplitSource]:
    found = {}
    for corpus, part in config.parts.items():
        try:
            found[corpus] = split_sources(part)
        except DataError as error:
            raise DataError(f"data.corpora.{corpus}: {error}") from error
        if "train" not in found[corpus]:
            present = ", ".join(found[corpus])
            raise MissingSplit(f"data.corpora.{corpus}: {part.place}: no 'train' split; present: {present}")
    having = {split: tuple((name, own[split]) for name, own in found.items() if split in own) for split in SPLITS}
    return {split: JoinedSource(split, "several", parts=parts) for split, parts in having.items() if parts}


def _jsonl_sources(path: Path, config: DataConfig) -> dict[str, SplitSource]:
    if path.is_file():
        whole = SplitSource("all", "jsonl", (str(path),))
        shares = {"train": 1.0, "valid": config.holdout[0], "test": config.holdout[1]}
        parts = {s: replace(whole, name=s, part=s, holdout=config.holdout) for s in SPLITS if shares[s] > 0}
        return {"all": whole, **parts}
    found = {split: _shards(path, split) for split in SPLITS}
    sources = {split: SplitSource(split, "jsonl", files) for split, files in found.items() if files}
    if not sources:
        raise DataError(
            f"{path}: none of train.jsonl, valid.jsonl, test.jsonl (or .jsonl.gz, or shards such as "
            f"train-00001.jsonl.gz or train/*.jsonl.gz): {_listing(path)}"
        )
    read = {"left_out.jsonl", *(Path(name).name for files in found.values() for name in files)}
    if others := sorted({file.name for end in ("", ".gz") for file in path.glob(f"*.jsonl{end}")} - read):
        warnings.warn(f"{path}: of no split and not read: {', '.join(others)}", stacklevel=2)
    return sources


def _shards(folder: Path, split: str) -> tuple[str, ...]:
    """The file of a split, or its shards by name: split-*.jsonl[.gz] or split/*.jsonl[.gz]; () if there is none."""
    whole = _one_of(folder, f"{split}.jsonl")
    kinds: dict[str, tuple[str, ...]] = {f"{split}.jsonl": (whole,) if whole else ()}
    for pattern in (f"{split}-*.jsonl", f"{split}/*.jsonl"):
        found = sorted(str(path) for suffix in ("", ".gz") for path in folder.glob(pattern + suffix) if path.is_file())
        if twice := {path.removesuffix(".gz") for path in found if path + ".gz" in found}:
            raise DataError(f"{folder}: both {min(twice)} and its .gz exist: remove one")
        kinds[pattern] = tuple(found)
    present = [name for name, files in kinds.items() if files]
    if len(present) > 1:
        raise DataError(f"{folder}: both {present[0]} and {present[1]} exist: keep one of them")
    return kinds[present[0]] if present else ()


def _text_sources(path: Path, config: DataConfig) -> dict[str, SplitSource]:
    if not path.is_dir():
        raise DataError(f"{path}: data.format=text needs a folder with train.{config.source_suffix} and so on")
    sources = {}
    for split in SPLITS:
        names = [f"{split}.{config.source_suffix}", f"{split}.{config.target_suffix}"]
        if config.boundaries == "ids":
            names.append(f"{split}.ids")
        files = [_one_of(path, name) for name in names]
        if files[0] is None and files[1] is None:
            continue
        if None in files:
            raise DataError(f"{path}: {names[files.index(None)]} is missing: the split's other files are there")
        paths = tuple(file for file in files if file is not None)
        sources[split] = SplitSource(split, "text", paths, boundaries=config.boundaries)
    if not sources:
        raise DataError(
            f"{path}: no train.{config.source_suffix} with train.{config.target_suffix} (or valid, test; or .gz); "
            f"set data.source_suffix and data.target_suffix: {_listing(path)}"
        )
    return sources


def _one_of(folder: Path, name: str) -> str | None:
    present = [str(path) for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(present) > 1:
        raise DataError(f"{folder}: both {name} and {name}.gz exist: remove one")
    return present[0] if present else None


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return f"the folder holds {', '.join(names[:8]) or 'nothing'}{' ...' if len(names) > 8 else ''}"
