"""Documents that are zip archives, office files and EPUB: limits of size, damage, and new content for some parts."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence

from scaleformer.formats.files import BlockFile
from scaleformer.formats.lines import LARGEST
from scaleformer.formats.markup import Markup
from scaleformer.formats.restoring import Change
from scaleformer.formats.rows import brief
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

# A part that exceeds both when unpacked is rejected.
_UNPACKED = 1 << 22  # bytes
_RATIO = 200
_OLE = b"\xd0\xcf\x11\xe0"  # first bytes of Office documents before 2007, and of encrypted ones


class ArchiveFile:
    """The blocks of the parts of an archive. Raises DataError if it is damaged, or too large when unpacked, and
    whatever else goes wrong in `_read`."""

    title: str  # of the format, in messages
    document = "document"

    def __init__(self, content: bytes, name: str) -> None:
        if content.startswith(_OLE):
            raise DataError(f"{name}: an old or encrypted {self.document}: save it as .{self.title} without a password")
        self._content = content
        self.left: Counter[str] = Counter()
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                size = sum(part.file_size for part in archive.infolist())
                if size > LARGEST:
                    raise DataError(f"{name}: {size:,} bytes unpacked, more than {LARGEST:,}: split it")
                self._parts = self._read(archive, name)
                if (damaged := archive.testzip()) is not None:
                    raise DataError(f"{name}: {brief(damaged)} in it is damaged: fetch it again")
        except (DataError, MemoryError):
            raise
        except Exception as error:  # zlib, zipfile and the readers of parts have no common class of errors
            reason = brief(error) or type(error).__name__
            raise DataError(f"{name}: not a sound {self.title} file ({reason})") from None
        self.blocks = [block for part in self._parts.values() for block in part.blocks]

    def _read(self, archive: zipfile.ZipFile, name: str) -> Mapping[str, BlockFile]:
        """The parts with prose, by their names, in the order of translation."""
        raise NotImplementedError

    def _also_written(self) -> dict[str, bytes]:
        """Other parts that a translation changes."""
        return {}

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The archive with the changes of each block; without changes the same bytes. All other parts, and the order of
        all, stay."""
        written: dict[str, bytes] = {}
        place = 0
        for name, part in self._parts.items():
            some = changes[place : place + len(part.blocks)]
            place += len(part.blocks)
            if any(some):
                written[name] = part.write(some)
        if not written:
            return self._content
        written |= self._also_written()
        packed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._content)) as archive, zipfile.ZipFile(packed, "w") as target:
            for old in archive.infolist():
                new = zipfile.ZipInfo(old.filename, old.date_time)
                new.compress_type, new.external_attr = old.compress_type, old.external_attr
                new.create_system, new.comment = old.create_system, old.comment
                target.writestr(new, written.get(old.filename) or archive.read(old))
        return packed.getvalue()


def read_part(archive: zipfile.ZipFile, part: str, name: str) -> bytes:
    """The content of a part. Raises DataError if it unpacks to more than a document of prose does."""
    size, packed = archive.getinfo(part).file_size, archive.getinfo(part).compress_size
    if size > max(_UNPACKED, _RATIO * packed):
        raise DataError(f"{name}: {brief(part)}: {packed:,} bytes unpack to {size:,}: not a document of prose")
    return archive.read(part)


def find_elements(archive: zipfile.ZipFile, part: str, name: str, tag: str) -> list[dict[str, str]]:
    """The attributes of the elements of that name in an XML part, in any name space. Raises DataError."""
    if part not in archive.NameToInfo:
        raise DataError(f"{name}: lacks {shown(part)}: fetch it again")
    tokens = Markup(read_part(archive, part, name), f"{name}: {part}").tokens
    return [token.attributes for token in tokens if token.kind == "start" and token.local == tag]
