"""Markdown (CommonMark with tables and strikethrough): markdown-it-py finds the prose and its position.

Code, links, images (except their alternative text), HTML, footnote marks, front matter and block marks stay as they
are. A translation that would change the structure of its block is tried with its marks escaped, then dropped.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from scaleformer.formats.blocks import FRONT_MATTER
from scaleformer.formats.breaks import render
from scaleformer.formats.html import html_blocks, html_edit
from scaleformer.formats.markdown_parser import MarkdownParser
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Block, BlockBuilder
from scaleformer.formats.splicing import Edit, decode, encode, splice

_LINE_END = re.compile(r"\r\n?|\n")
_IN_TEXT = re.compile(r"\[\^[^\]\s]+\]:?|\\\|")  # footnote marks, and the stand-in for `|` in a cell
_MARKS = re.compile(r"([\\`*_\[\]<>~|]|&(?=#?\w+;))")
_ESCAPES = re.compile(r"\\(?=[!-/:-@\[-`{-~]|$)|&(?=#?\w+;)")  # what would turn the next characters into others
_BLOCK_MARK = re.compile(r"^(\d*)([-+#=:.)>~])")


class MarkdownFile:
    """The blocks of a Markdown file. Raises DataError if it is not text or is nested too deeply for the parser; left
    counts translations that would change its structure."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content, _ = decode(content, name)
        self.left: Counter[str] = Counter()
        self._parser = MarkdownParser(name)
        self._holes = list(self._find(name))
        self.blocks = [block for block, _ in self._holes]

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the changes of each block."""
        edits: list[Edit] = []
        inside: dict[_Inline, list[Edit]] = defaultdict(list)
        for (block, hole), some in zip(self._holes, changes, strict=True):
            if hole is None:
                edits += [html_edit(block, change, self.content) for change in some]
            else:
                self._edit(block, hole, some, inside[hole])
        edits += [inline.raw(edit, self.content) for inline, some in inside.items() for edit in some]
        return encode(splice(self.content, edits), "utf-8")

    def _find(self, name: str) -> Iterator[tuple[Block, _Inline | None]]:
        front = FRONT_MATTER.match(self.content)
        skipped = front.end() if front else 0
        # Its lines become empty, so that later lines keep their numbers.
        text = "\n" * len(_LINE_END.findall(self.content[:skipped])) + self.content[skipped:].replace("\ufeff", " ", 1)
        lines = [0, *(found.end() for found in _LINE_END.finditer(self.content))]
        lines += [len(self.content)] if lines[-1] < len(self.content) or len(lines) == 1 else []
        row = cursor = 0
        for token, kind in self._parser.blocks(text, name):
            if token.type == "html_block":
                first, last = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
                yield from ((block, None) for block in html_blocks(self.content[first:last], name, first))
            elif token.content.strip() and token.map[0] < len(lines) - 1:
                if kind != "cell" or token.map[0] != row:
                    row, cursor = token.map[0], lines[token.map[0]]
                inline = _Inline(token, kind, self.content, lines, cursor)
                cursor = inline.places[-1]
                for block in inline.blocks(self._parser):
                    yield block, inline

    def _edit(self, block: Block, inline: _Inline, changes: Sequence[Change], inside: list[Edit]) -> None:
        """Add the changes of a block to the edits of a heading, paragraph or cell."""
        for change in changes:
            light = _escape_cell if inline.kind == "cell" else _escape_least
            for escape in (_escape,) if inline.leads else (light, _escape):
                text = render(block, change, inline.line_end, escape, letters=True)
                if (inline.kind != "cell" or inline.leads) and change.start == 0 and escape is _escape:
                    text = _BLOCK_MARK.sub(r"\1\\\2", text)
                edit = *block.origin(change.start, change.stop), text
                if self._parser.is_alike(inline.content, inline.kind, [*inside, edit]):
                    inside.append(edit)
                    break
            else:
                self.left["segments left as they are, since their translation would change the structure"] += 1


def _escape(prose: str) -> str:
    return _MARKS.sub(r"\\\1", prose)


def _escape_least(prose: str) -> str:
    return _ESCAPES.sub(r"\\\g<0>", prose)


def _escape_cell(prose: str) -> str:
    return _escape_least(prose).replace("|", r"\|")


class _Inline:
    """The content of a heading, paragraph or cell as parsed; places: where each of its characters begins in the file,
    and where the last ends; leads: whether it is a cell that begins its line. In a cell a `|` has a backslash in the
    file."""

    def __init__(self, token: Any, kind: str, content: str, lines: Sequence[int], start: int) -> None:
        self.token, self.kind = token, kind
        self.content: str = token.content.replace("|", r"\|") if kind == "cell" else token.content
        self.places: list[int] = []
        for number, line in enumerate(self.content.split("\n"), token.map[0]):
            first, stop = lines[number], lines[number + 1]
            written = content[first:stop].rstrip()
            shown = line.strip()
            if kind in ("paragraph", "underlined"):  # the text before it marks the enclosing blocks
                place = first + len(written) - len(shown)
            else:
                begin = max(first, start) if kind == "cell" else content.index("#", first, stop) + 1
                place = content.index(shown, begin, stop)
            indent = len(line) - len(line.lstrip())
            self.places += [place] * indent + list(range(place, place + len(shown)))
            self.places += [place + len(shown)] * (len(line) - indent - len(shown) + 1)
        first = lines[token.map[0]]
        self.leads = kind == "cell" and "|" not in content[first : self.places[0]]

    def line_end(self, start: int, stop: int) -> str:
        """A line break if there is one between two places; `raw` has its form in the file."""
        return "\n" if "\n" in self.content[start:stop] else ""

    def raw(self, edit: Edit, content: str) -> Edit:
        """The edit of the content as an edit of the file, with its line breaks."""
        start, stop, text = edit
        breaks = [content[self.places[i] : self.places[i + 1]] for i in range(start, stop) if self.content[i] == "\n"]
        parts = text.split("\n")
        # a break includes the indentation of the line after it
        written = parts[0] + "".join(a + b.lstrip(" \t") for a, b in zip(breaks, parts[1:], strict=False))
        return self.places[start], self.places[stop - 1] + 1, written

    def blocks(self, parser: MarkdownParser) -> Iterator[Block]:
        """The prose between hard line breaks."""
        builder, place = BlockBuilder(), 0
        for piece in [*parser.pieces(self.content, self.token), None]:
            start = piece.start if piece else len(self.content)
            for found in [*_IN_TEXT.finditer(self.content, place, start), None]:
                end = found.start() if found else start
                builder.text(self.content[place:end], place)
                if found and place == 0 and found.start() == 0 and found[0].endswith(":"):
                    place = found.end()  # the mark at the start of a footnote
                elif found:
                    if found[0] == r"\|":
                        builder.character("|", *found.span(), found[0])
                    else:
                        builder.span(found[0], *found.span())
                    place = found.end()
            if piece is None or piece.kind == "break":
                if block := builder.build():
                    yield block
                builder = BlockBuilder()
            elif piece.kind == "character":
                builder.character(piece.content, piece.start, piece.stop, self.content[piece.start : piece.stop])
            else:
                span = piece.content or self.content[piece.start : piece.stop]
                builder.span(span, piece.start, piece.stop, piece.pair, piece.kind == "open", bool(piece.content))
            place = piece.stop if piece else start
