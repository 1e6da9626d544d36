"""Files with prose: what the class of a format has to offer, and the one way to their blocks and segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from scaleformer.formats.recognition import FORMATS, load
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Block, Segment, split_block


class BlockFile(Protocol):
    """A file of one of the formats: its prose, counts of what stays untranslated by reason, and a writer for changed
    blocks."""

    blocks: list[Block]
    left: Counter[str]

    def __init__(self, content: bytes, name: str) -> None: ...

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes: ...


def read_prose(
    content: bytes, name: str, format: str, language: str, grain: str, target: str = ""
) -> tuple[BlockFile, list[list[Segment]]]:
    """A file and the segments of each of its blocks, to train on and to translate.

    format  a name of `FORMATS`
    grain   as in `split_block`; "none" also makes each line of a plain text a block
    target  the language of the translation, if it is known, which web pages, books and XLIFF name
    Raises DataError if it is not a sound file of the format.
    """
    options: dict[str, Any] = {"by_line": True} if format == "text" and grain == "none" else {}
    options |= {"language": target} if format in ("epub", "html", "xliff") else {}
    file: BlockFile = load(FORMATS[format].prose)(content, name, **options)
    grain = "paragraph" if FORMATS[format].whole else grain
    return file, [split_block(block, language, grain) for block in file.blocks]
