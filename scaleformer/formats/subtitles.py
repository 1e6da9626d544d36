"""Subtitles (SRT and WebVTT): each cue is a block; numbers, names and times stay, and so do notes and styles.

Source for WebVTT: the W3C Candidate Recommendation of 2019, section 4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from scaleformer.formats.blocks import Block, BlockBuilder
from scaleformer.formats.restoring import Change
from scaleformer.formats.splicing import add_referenced, decode, escape_html, make_edits, splice
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_TIME = r"\d{1,3}:\d{1,2}:\d{1,2}(?:[,.]\d{1,3})?"
_WEB_TIME = r"(?:\d{1,3}:)?\d\d:\d\d[,.]\d{1,3}"
# optionally followed by screen coordinates
_TIMES, _WEB_TIMES = (re.compile(rf"\s*{time}\s*-->\s*{time}(?:\s+\S.*)?\s*") for time in (_TIME, _WEB_TIME))
_NEARLY = re.compile(r"\s*-?\d{1,3}:\d{1,2}(?::\d{1,2}[\d.,]{0,9}\s*-{1,9}>|[\d.,]{0,9}\s*-->)")  # wrong times
_NUMBER = re.compile(r"\s*\d+\s*")
_EXAMPLES = "00:00:01,000 --> 00:00:02,500", "00:01.000 --> 00:02.500"
_BESIDE = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s.*)?")  # the first line of what is no cue
_TAG = re.compile(r"<(/?)([A-Za-z]+)(?:[.\s][^<>\r\n]*)?>|<[\d:.]+>|\{\\[^{}\r\n]*\}")


class SrtFile:
    """The cues of an SRT file. Raises DataError with file and line for wrong times and for text without any, also if it
    is not UTF-8 text."""

    _web = False  # of WebVTT: times may be short, cues have names, texts have references such as &amp;

    def __init__(self, content: bytes, name: str) -> None:
        self._content, _ = decode(content, name)
        self.left: Counter[str] = Counter()
        found = [_block(self._content, start, stop, self._web) for start, stop in self._texts(name)]
        self.blocks = [block for block in found if block is not None]
        if wordless := len(found) - len(self.blocks):
            self.left["cues without words"] = wordless

    def _texts(self, name: str) -> Iterator[tuple[int, int]]:
        """The range of each cue's text, as players find it. It begins after the times and goes to the next times and
        the number before them: of SRT even over empty lines, of WebVTT to the first one."""
        pattern = _WEB_TIMES if self._web else _TIMES
        lines = list(_LINE.finditer(self._content, self._content.startswith("\ufeff")))
        times = [number for number, line in enumerate(lines) if pattern.fullmatch(line[1])]
        outside: list[int] = []
        for first, after in pairwise([-1, *times, len(lines)]):
            filled = [number for number in range(first + 1, after) if lines[number][1].strip()]
            numbered = filled and after < len(lines) and _NUMBER.fullmatch(lines[filled[-1]][1])
            if numbered and (filled[-1] + 1 == after or filled[-1] - 1 not in filled[-2:]):
                filled.pop()
            read = 0
            if first >= 0:
                read = len(filled)
                if self._web:
                    read = next((i for i, number in enumerate(filled) if number != first + 1 + i), read)
                start = lines[first].end()
                yield start, lines[filled[read - 1]].end(1) if read else start
            for _, some in groupby(enumerate(filled[read:]), lambda pair: pair[1] - pair[0]):
                together = [number for _, number in some]
                named = _BESIDE.fullmatch(lines[together[0]][1]) or together == [after - 1]  # the name of a cue
                outside += [] if self._web and named else together
        self._check(name, lines, outside if not times else [], pattern)
        if outside:
            self.left["lines outside of cues"] = len(outside)

    def _check(self, name: str, lines: Sequence[re.Match[str]], outside: Sequence[int], times: re.Pattern[str]) -> None:
        """Raise DataError for what looks like times, and for lines where there are no times at all."""
        wrong = [n for n, line in enumerate(lines) if _NEARLY.match(line[1]) and not times.fullmatch(line[1])]
        if not wrong and outside:
            wrong = [n for n in outside if not _NUMBER.fullmatch(lines[n][1])] or [outside[0] + 1]
        if wrong:
            text = shown(lines[wrong[0]][1])
            raise DataError(f"{name}:{wrong[0] + 1}: {text}: wanted times, {_EXAMPLES[self._web]}")

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the changes of each block, with as many lines as before."""
        escape = escape_html if self._web else str
        return splice(self._content, make_edits(self._content, self.blocks, changes, escape)).encode()


class VttFile(SrtFile):
    """The cues of a WebVTT file, as of SRT."""

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

    def add(first: int, last: int) -> None:
        if escaped:
            add_referenced(builder, content, first, last)
        else:
            builder.text(content[first:last], first)

    place = start
    for number, tag in enumerate(tags):
        add(place, tag.start())
        pair = pairs.get(number)
        builder.span(tag[0], tag.start(), tag.end(), pair, pair is not None and not tag[1])
        place = tag.end()
    add(place, stop)
    return builder.build()
