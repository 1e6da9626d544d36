"""Subtitles (SRT): each cue is a block; numbers and times stay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from scaleformer.data.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.translation.files.breaks import render
from scaleformer.translation.files.restoring import Change
from scaleformer.translation.files.segments import Block, BlockBuilder
from scaleformer.translation.files.splicing import decode, encode, splice

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_TIME = r"\d{1,3}:\d\d:\d\d[,.]\d{1,3}"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s+\S.*)?\s*")  # optionally followed by screen coordinates
_NUMBER = re.compile(r"\s*\d+\s*")
_TAG = re.compile(r"<(/?)([A-Za-z]+)(?:\s[^<>\r\n]*)?>|\{\\[^{}\r\n]*\}")


class SrtFile:
    """The cues of an SRT file. Raises DataError with file and line for a cue without number or times, also if it is
    not UTF-8 text."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content, _ = decode(content, name)
        found = [_block(self._content, start, stop) for start, stop in _texts(self._content, name)]
        self.blocks = [block for block in found if block is not None]
        self.left: Counter[str] = Counter()
        if wordless := len(found) - len(self.blocks):
            self.left["cues without words"] = wordless

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the changes of each block, with as many lines as before."""
        edits = []
        for block, some in zip(self.blocks, changes, strict=True):
            for change in some:
                text = render(block, change, lambda start, stop: self._content[start:stop])
                edits.append((*block.origin(change.start, change.stop), text))
        return encode(splice(self._content, edits), "utf-8")


def _texts(content: str, name: str) -> list[tuple[int, int]]:
    """The range of each cue's text: a cue is a number, times, and the lines up to an empty one."""
    texts = []
    wanted, begin = "number", 0
    for line, match in enumerate(_LINE.finditer(content, content.startswith("\ufeff")), 1):
        text = match[1]
        if wanted == "text":
            if not text.strip():
                texts.append((begin, match.start()))
                wanted = "number"
        elif wanted == "times":
            if not _TIMES.fullmatch(text):
                raise DataError(f"{name}:{line}: {shown(text)}: wanted times, 00:00:01,000 --> 00:00:02,500")
            wanted, begin = "text", match.end()
        elif text.strip():
            if not _NUMBER.fullmatch(text):
                raise DataError(f"{name}:{line}: {shown(text)}: wanted the number of a cue after an empty line")
            wanted = "times"
    return texts


def _block(content: str, start: int, stop: int) -> Block | None:
    """A cue; matching tags are pairs, other marks and unmatched tags are single spans."""
    builder = BlockBuilder()
    tags = list(_TAG.finditer(content, start, stop))
    pairs: dict[int, int] = {}
    open_tags: list[int] = []
    for number, tag in enumerate(tags):
        if tag[2] is not None and not tag[1]:
            open_tags.append(number)
        elif tag[2] is not None and open_tags and tags[open_tags[-1]][2].lower() == tag[2].lower():
            pairs[open_tags.pop()] = pairs[number] = number
    place = start
    for number, tag in enumerate(tags):
        builder.text(content[place : tag.start()], place)
        pair = pairs.get(number)
        builder.span(tag[0], tag.start(), tag.end(), pair, pair is not None and not tag[1])
        place = tag.end()
    builder.text(content[place:stop], place)
    return builder.build()
