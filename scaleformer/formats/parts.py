"""Documents that are zip archives: new content for the parts whose prose changes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Protocol

from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Block


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
