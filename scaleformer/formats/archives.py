"""Documents that are zip archives, docx and EPUB: limits of their size, damage, and new content for some parts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from scaleformer.formats.restoring import Change
from scaleformer.formats.rows import brief
from scaleformer.formats.segments import Block
from scaleformer.system.errors import DataError

LARGEST = 1 << 28  # bytes of all parts, unpacked: more than any real document
# A part that exceeds both when unpacked is rejected.
_UNPACKED = 1 << 22  # bytes
_RATIO = 200


@contextmanager
def open_archive(content: bytes, name: str, title: str) -> Iterator[zipfile.ZipFile]:
    """The archive, whose parts are checked at the end.

    title  of the format, in messages
    Raises DataError if it is damaged, or too large when unpacked, and whatever else goes wrong inside.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(part.file_size for part in archive.infolist())
            if size > LARGEST:
                raise DataError(f"{name}: {size:,} bytes unpacked, more than {LARGEST:,}: split it")
            yield archive
            if (damaged := archive.testzip()) is not None:
                raise DataError(f"{name}: {brief(damaged)} in it is damaged: fetch it again")
    except DataError:
        raise
    except Exception as error:  # zlib, zipfile and the readers of parts have no common class of errors
        reason = brief(error) or type(error).__name__
        raise DataError(f"{name}: not a sound {title} file ({reason})") from None


def read_part(archive: zipfile.ZipFile, part: str, name: str) -> bytes:
    """The content of a part. Raises DataError if it unpacks to more than a document of prose does."""
    size, packed = archive.getinfo(part).file_size, archive.getinfo(part).compress_size
    if size > max(_UNPACKED, _RATIO * packed):
        raise DataError(f"{name}: {brief(part)}: {packed:,} bytes unpack to {size:,}: not a document of prose")
    return archive.read(part)


class Part(Protocol):
    """A part of an archive that holds prose."""

    blocks: list[Block]

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes: ...


def write_parts(content: bytes, parts: Mapping[str, Part], changes: Sequence[Sequence[Change]]) -> bytes:
    """The archive with the changes of each block of its parts, in their order; without changes the same bytes. All
    other parts, and the order of all, stay."""
    written: dict[str, bytes] = {}
    place = 0
    for name, part in parts.items():
        some = changes[place : place + len(part.blocks)]
        place += len(part.blocks)
        if any(some):
            written[name] = part.write(some)
    if not written:
        return content
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(packed, "w") as target:
        for old in archive.infolist():
            new = zipfile.ZipInfo(old.filename, old.date_time)
            new.compress_type, new.external_attr = old.compress_type, old.external_attr
            new.create_system, new.comment = old.create_system, old.comment
            target.writestr(new, written.get(old.filename) or archive.read(old))
    return packed.getvalue()
