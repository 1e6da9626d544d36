"""Documents that are zip archives, docx and EPUB: limits of their size, and damage."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from scaleformer.formats.rows import brief
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
