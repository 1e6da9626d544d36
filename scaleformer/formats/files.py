"""Files whose prose is translated: what the class of a format has to offer, and which class a format has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from scaleformer.formats.recognition import FORMATS, load
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Block


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
