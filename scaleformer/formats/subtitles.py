"""Subtitles (SRT and WebVTT): each cue is a block; numbers, names and times stay, and so do notes and styles.

Source for WebVTT: the W3C Candidate Recommendation of 2019, section 4.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Block, BlockBuilder
from scaleformer.formats.splicing import decode, escape_html, make_edits, splice
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_TIME = r"\d{1,3}:\d\d:\d\d[,.]\d{1,3}"
_SHORT_TIME = rf"(?:{_TIME}|\d\d:\d\d\.\d{{3}})"  # of WebVTT
# optionally followed by screen coordinates
_TIMES, _SHORT_TIMES = (re.compile(rf"\s*{time}\s*-->\s*{time}(?:\s+\S.*)?\s*") for time in (_TIME, _SHORT_TIME))
_NUMBER = re.compile(r"\s*\d+\s*")
_EXAMPLES = "00:00:01,000 --> 00:00:02,500", "00:01.000 --> 00:02.500"
_BESIDE = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s.*)?")  # the first line of what is no cue
_TAG = re.compile(r"<(/?)([A-Za-z]+)(?:[.\s][^<>\r\n]*)?>|<[\d:.]+>|\{\\[^{}\r\n]*\}")
_REFERENCE = re.compile(r"&(?:#\d{1,9}|#[xX][\da-fA-F]{1,9}|[A-Za-z]+);")


class SrtFile:
    """The cues of an SRT file. Raises DataError with file and line for a cue without number or times, also if it is
    not UTF-8 text."""

    _web = False  # of WebVTT: times may be short, cues have names or none, texts have references such as &amp;

    def __init__(self, content: bytes, name: str) -> None:
        self._content, _ = decode(content, name)
        found = [_block(self._content, start, stop, self._web) for start, stop in self._texts(name)]
        self.blocks = [block for block in found if block is not None]
        self.left: Counter[str] = Counter()
        if wordless := len(found) - len(self.blocks):
            self.left["cues without words"] = wordless

    def _texts(self, name: str) -> Iterator[tuple[int, int]]:
        """The range of each cue's text: a cue is a number or a name, times, and the lines up to an empty one."""
        times = _SHORT_TIMES if self._web else _TIMES
        wanted, begin = "cue", 0
        for line, match in enumerate(_LINE.finditer(self._content, self._content.startswith("\ufeff")), 1):
            text = match[1]
            if wanted in ("text", "nothing"):
                if not text.strip():
                    if wanted == "text":
                        yield begin, match.start()
                    wanted = "cue"
            elif (wanted == "times" or self._web) and times.fullmatch(text):
                wanted, begin = "text", match.end()
            elif wanted == "times":
                raise DataError(f"{name}:{line}: {shown(text)}: wanted times, {_EXAMPLES[self._web]}")
            elif text.strip():
                if not self._web and not _NUMBER.fullmatch(text):
                    raise DataError(f"{name}:{line}: {shown(text)}: wanted the number of a cue after an empty line")
                wanted = "nothing" if self._web and _BESIDE.fullmatch(text) else "times"

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the changes of each block, with as many lines as before."""
        escape = escape_html if self._web else str
        return splice(self._content, make_edits(self._content, self.blocks, changes, escape)).encode()


class VttFile(SrtFile):
    """The cues of a WebVTT file. Raises DataError with file and line for a cue without times, also if it is not UTF-8
    text."""

    _web = True


def _block(content: str, start: int, stop: int, escaped: bool) -> Block | None:
    """A cue; matching tags are pairs, other marks and unmatched tags are single spans.

    escaped  whether it has references, which are read as their characters
    """
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
        _add(builder, content, place, tag.start(), escaped)
        pair = pairs.get(number)
        builder.span(tag[0], tag.start(), tag.end(), pair, pair is not None and not tag[1])
        place = tag.end()
    _add(builder, content, place, stop, escaped)
    return builder.build()


def _add(builder: BlockBuilder, content: str, start: int, stop: int, escaped: bool) -> None:
    """Add text to a block."""
    for found in _REFERENCE.finditer(content, start, stop) if escaped else ():
        builder.text(content[start : found.start()], start)
        character = html.unescape(found[0])
        if len(character) == 1:
            builder.character(character, found.start(), found.end(), found[0])
        else:
            builder.span(found[0], found.start(), found.end())
        start = found.end()
    builder.text(content[start:stop], start)
