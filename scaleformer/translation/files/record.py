"""The record beside translated files, from which a later call continues: what each was translated from and into."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scaleformer.system.errors import DataError
from scaleformer.system.files import replaced
from scaleformer.system.schema import check_fields
from scaleformer.translation.translations import DocumentHypothesis

log = logging.getLogger(__name__)
HEADER = b'{"record": "scaleformer translate", "version": 1}\n'
Place = tuple[int, ...]  # the number of a block, and where a segment begins and ends in its text; () if unknown


@dataclass(frozen=True)
class FileRecord:
    """A translated file, with its documents one after the other.

    written   hash of its content
    before    hash of the content that it replaced, which still stands if the call was broken off; "" for none
    settings  hash of the model, the version of the program and all settings
    forced    hash of the texts that the translation had to have
    sources   the segments of each document
    found     the translation of each document
    by_hand   numbers of the segments that a person corrected
    texts     of each block, as the file has it, with marks for spans; None if it cannot be read
    places    of each segment; kept: what stands at the marks there
    frame     hash of the file without its segments
    Raises ValueError if they do not fit together.
    """

    written: str
    before: str
    settings: str
    forced: str
    sources: tuple[tuple[str, ...], ...]
    found: tuple[DocumentHypothesis, ...]
    by_hand: tuple[int, ...] = ()
    texts: tuple[str, ...] | None = None
    places: tuple[Place, ...] = ()
    kept: tuple[tuple[str | None, ...], ...] = ()
    frame: str = ""

    def __post_init__(self) -> None:
        check_fields(self, "")
        count = len(self.source)
        fits = [len(one.segments) for one in self.found] == [len(source) for source in self.sources]
        fits &= len(self.places) == len(self.kept) == count * (self.texts is not None)
        fits &= all(0 <= number < count for number in self.by_hand)
        sizes = list(map(len, self.texts or ()))
        for place in filter(None, self.places):
            fits = fits and len(place) == 3 and 0 <= place[0] < len(sizes)
            fits = fits and 0 <= place[1] <= place[2] <= sizes[place[0]]
        if not fits:
            raise ValueError("its parts do not fit together")

    @property
    def source(self) -> list[str]:
        """All segments."""
        return [segment for source in self.sources for segment in source]

    @property
    def target(self) -> list[str]:
        """Their translations."""
        return [segment for one in self.found for segment in one.segments]


@dataclass
class Record:
    """The files of all calls with the same output. path: of the record; foreign: whether another file has its name."""

    path: Path
    files: dict[str, FileRecord] = field(default_factory=dict)
    foreign: bool = False

    @classmethod
    def read(cls, output: str) -> Record:
        """That beside an output, empty if there is none. What is damaged is left out, with a warning in one line."""
        record = cls(Path(f"{output.rstrip(os.sep)}.record"))
        if not record.path.exists():
            return record
        try:
            first, *lines = record.path.read_bytes().splitlines(keepends=True) or [b""]
        except OSError:
            first, lines = b"", []
        if record.path.is_dir() or first != HEADER:
            record.foreign = True
            log.warning("%s is no record of this version of the program: it stays, and none is kept", record.path)
            return record
        for line in lines:
            record.files.update(_parsed(line))
        if damaged := len(lines) - len(record.files):
            log.warning("%s: %d of %d files are damaged there, and left out", record.path, damaged, len(lines))
        return record

    def name(self, file: Path) -> str:
        """The name of an output file."""
        return os.path.relpath(file, self.path.parent)

    def of(self, file: Path) -> FileRecord | None:
        """What is known of an output file."""
        return self.files.get(self.name(file))

    def write(self) -> None:
        """Write the files that exist or are about to, whole or not at all. Raises OSError."""
        if self.foreign:
            return
        with replaced(self.path) as temporary, temporary.open("wb") as file:
            file.write(HEADER)
            for name, one in self.files.items():
                line = json.dumps({"file": name, **asdict(one)}, ensure_ascii=False)
                file.write(line.encode("utf-8", "surrogatepass") + b"\n")


def _parsed(line: bytes) -> Iterator[tuple[str, FileRecord]]:
    """The entry of a line, if it is sound."""
    try:
        values: dict[str, Any] = json.loads(line)
        name = values.pop("file")
        found = tuple(map(DocumentHypothesis.from_json, values.pop("found")))
        for one in found:
            check_fields(one, "")
        made = {key: _tuples(value) for key, value in values.items()}
        yield name + "", FileRecord(found=found, **made)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def hash_of_bytes(content: bytes) -> str:
    """The hash of a file's content."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path) -> bytes | None:
    """The content of a file; None if there is none. Raises DataError if it cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
