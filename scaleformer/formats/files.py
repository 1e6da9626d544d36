"""Files whose prose is translated: what the class of a format has to offer, and which class a format has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from scaleformer.formats.recognition import FORMATS, load
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Block
from scaleformer.system.errors import DataError

_GZIP = b"\x1f\x8b"
LARGEST = 1 << 28  # bytes of a file, packed or not: more than any real document


class BlockFile(Protocol):
    """A file of one of the formats: its prose, counts of what stays untranslated by reason, and a writer for changed
    blocks."""

    blocks: list[Block]
    left: Counter[str]

    def __init__(self, content: bytes, name: str) -> None: ...

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes: ...


def class_of(format: str) -> type[BlockFile]:
    """The class of a format."""
    kind: type[BlockFile] = load(FORMATS[format].prose)
    return kind


def read_content(path: Path) -> bytes:
    """The content of a file. Raises DataError if it cannot be read, is larger than `LARGEST` or is compressed."""
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise DataError(f"{path}: {size:,} bytes, more than {LARGEST:,}: split it")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if content.startswith(_GZIP):
        raise DataError(f"{path}: is compressed: unpack it first")
    return content
