"""The record beside translated files, from which a later call continues: what each was translated from and into."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scaleformer.system.errors import DataError
from scaleformer.system.files import replaced


@dataclass(frozen=True)
class FileRecord:
    """A translated file, with its documents one after the other.

    written   hash of its content
    before    hash of the content that it replaced, which still stands if the call was broken off; "" for none
    settings  hash of the model, the version of the program and all settings; call: of these and of the source
    source    the segments; target: their translations
    by_hand   numbers of the segments that a person corrected
    texts     of each block, as the file has it, with marks for spans
    places    of each segment: the number of its block, and where it begins and ends there; [] if unknown
    kept      what stands at the marks of each segment
    frame     hash of the file without its segments
    """

    written: str
    before: str
    settings: str
    call: str
    source: list[str]
    target: list[str]
    by_hand: list[int]
    texts: list[str]
    places: list[list[int]]
    kept: list[list[str | None]]
    frame: str


@dataclass
class Record:
    """The files of all calls with the same output, by their names from the folder of the record, which is at `path`."""

    path: Path
    files: dict[str, FileRecord] = field(default_factory=dict)

    @classmethod
    def read(cls, output: str) -> Record:
        """That beside an output, empty if there is none. Raises DataError if it is damaged, or no record."""
        record = cls(Path(f"{output.rstrip(os.sep)}.record"))
        if not record.path.exists():
            return record
        head, _, body = (read_bytes(record.path) or b"").partition(b"\n")
        if head != _head(body):
            wanted = "move it away; update=true needs it, and overwrite=true replaces translations without it"
            raise DataError(f"{record.path}: damaged, or no record of this version of the program: {wanted}")
        for line in body.splitlines():
            name, values = json.loads(line)
            record.files[name] = FileRecord(**values)
        return record

    def name(self, file: Path) -> str:
        """The name of an output file."""
        return os.path.relpath(file, self.path.parent)

    def of(self, file: Path) -> FileRecord | None:
        """What is known of an output file."""
        return self.files.get(self.name(file))

    def write(self) -> None:
        """Write it, whole or not at all. Raises OSError."""
        lines = (json.dumps([name, asdict(one)], ensure_ascii=False) for name, one in self.files.items())
        body = b"".join(line.encode("utf-8", "surrogatepass") + b"\n" for line in lines)
        with replaced(self.path) as temporary:
            temporary.write_bytes(_head(body) + b"\n" + body)


def _head(body: bytes) -> bytes:
    return json.dumps({"record": "scaleformer translate", "version": 2, "sha256": hash_of_bytes(body)}).encode()


def hash_of_bytes(content: bytes) -> str:
    """The hash of a file's content."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path) -> bytes | None:
    """The content of a file; None if there is none. Raises DataError if it cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
