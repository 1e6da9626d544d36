"""Plain text as prose: paragraphs between blank lines, or one per line if lines are long or none is blank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from scaleformer.formats.blocks import Block, BlockBuilder
from scaleformer.formats.restoring import Change
from scaleformer.formats.splicing import decode, make_edits, splice

_UNWRAPPED = 120  # characters: in a file with a longer line, every line is a paragraph
_END = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"[^\r\n]+")
_PARAGRAPH = re.compile(r"[^\r\n]+(?:(?:\r\n?|\n)[^\r\n]*[^\s][^\r\n]*)*")


class TextFile:
    """The paragraphs of a text, or all its lines; lines: the number of the first one of each block. Raises DataError if
    it is not UTF-8."""

    def __init__(self, content: bytes, name: str, by_line: bool = False) -> None:
        self.content, _ = decode(content, name)
        self.left: Counter[str] = Counter()
        self.blocks: list[Block] = []
        self.lines: list[int] = []
        lines = self.content.splitlines()
        wrapped = max(map(len, lines), default=0) <= _UNWRAPPED and any(not line.strip() for line in lines)
        start, line = int(self.content.startswith("\ufeff")), 1
        place = start
        for found in (_PARAGRAPH if wrapped and not by_line else _LINE).finditer(self.content, start):
            builder = BlockBuilder()
            builder.text(found[0], found.start())
            line += len(_END.findall(self.content, place, found.start()))
            place = found.start()
            if block := builder.build():
                self.blocks.append(block)
                self.lines.append(line)

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The text with the changes of each block."""
        return splice(self.content, make_edits(self.content, self.blocks, changes)).encode()
