"""The prose of a heading, paragraph or cell of Markdown, and its place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from scaleformer.formats.blocks import Block, BlockBuilder
from scaleformer.formats.html_elements import find_elements
from scaleformer.formats.splicing import Edit
from scaleformer.text.spans import find_spans

_ANY_TAG = re.compile(r"<[^<>]*>")


class Inline:
    """The content of a heading, paragraph, title or cell as parsed.

    places  where each of its characters begins in the file, and where the last ends
    leads   whether it is a cell that begins its line
    In a cell a `|` has a backslash in the file.
    """

    def __init__(self, token: Any, form: str, content: str, lines: Sequence[int], start: int) -> None:
        self.children, self.form = token.children, form
        self.content: str = token.content
        self.places: list[int] = []
        for number, line in enumerate(self.content.split("\n"), token.map[0]):
            first, stop = lines[number], lines[number + 1]
            shown = line.strip()
            written = shown.replace("|", r"\|") if form == "cell" else shown
            if form in ("paragraph", "underlined", "title"):  # the text before it marks the enclosing blocks
                place = first + len(content[first:stop].rstrip()) - token.meta.get("after", 0) - len(written)
            else:
                begin = max(first, start) if form == "cell" else content.index("#", first, stop) + 1
                place = content.index(written, begin, stop)
            indent = len(line) - len(line.lstrip())
            self.places += [place] * indent
            for character in shown:
                self.places.append(place)
                place += 2 if form == "cell" and character == "|" else 1
            self.places += [place] * (len(line) - indent - len(shown) + 1)
        self.leads = form == "cell" and "|" not in content[lines[token.map[0]] : self.places[0]]

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
        written = re.sub(r"\\?\|", r"\\|", written) if self.form == "cell" else written
        return self.places[start], self.places[stop], written

    def blocks(self, kind: str) -> Iterator[Block]:
        """The prose between hard line breaks."""
        builder, place = BlockBuilder(kind), 0
        end = len(self.content)
        for piece in [*_pieces(self.children, self.content), _Piece(end, end, "break")]:
            builder.text(self.content[place : piece.start], place)
            written = self.content[piece.start : piece.stop]
            if piece.kind == "break":
                if block := builder.build():
                    yield block
                builder = BlockBuilder(kind)
            elif piece.kind == "character":
                builder.character(piece.text, piece.start, piece.stop, written)
            else:
                shown = written if piece.shown is None else piece.shown
                opens, changed = piece.kind == "open", bool(piece.text)
                builder.span(piece.text or written, piece.start, piece.stop, piece.pair, opens, changed, shown)
            place = piece.stop


class _Piece(NamedTuple):
    """An inline element that is not prose.

    kind   open | close | lone | break | character
    text   the character, or what is written for it with its translation, if not the same
    shown  what a text to train on has in its place, if not the same
    """

    start: int
    stop: int
    kind: str
    pair: int | None = None
    text: str = ""
    shown: str | None = None


def _pieces(children: Sequence[Any], content: str) -> Iterator[_Piece]:
    """All inline elements that are not prose, in order."""
    opened: list[tuple[int, int]] = []  # numbers, and where their content begins
    elements = find_elements(content)
    begins = {end: start for start, (end, *_) in elements.items()}
    titled = any(child.type == "boundary" and child.content.startswith("[!") for child in children[:1])
    for number, child in enumerate(children):
        if "place" not in child.meta or child.type == "text":
            continue
        start, stop = child.meta["place"]
        if child.type == "text_special" and content[start:stop] == child.content:  # a backslash that escapes nothing
            continue
        if child.type == "softbreak":
            if titled:
                yield _Piece(start, stop, "break")
            titled = False
            continue
        start -= child.type == "strong_open"  # a double mark has two tokens, one of them emptied
        stop += child.type == "strong_close"
        if child.markup == "autolink":
            if child.nesting == 1:
                yield _Piece(start, stop, "lone")
        elif child.type == "text_special" and len(child.content) == 1:
            yield _Piece(start, stop, "character", None, child.content)
        elif (
            child.type == "image"
            and content.startswith(child.content, start + 2)
            and all(inner.type in ("text", "softbreak") for inner in child.children or [])
        ):
            end = start + 2 + len(child.content)
            yield _Piece(start, start + 2, "open", number)
            yield _Piece(end, stop, "close", number)
        elif child.type == "html_inline":
            kind = "open" if start in elements else "close" if start in begins else "lone"
            yield _Piece(start, stop, kind, None if kind == "lone" else -1 - begins.get(start, start))
        elif child.type == "kept":
            yield _Piece(start, stop, "lone", shown=_in_backticks(child.content))
        elif child.nesting == 1:
            opened.append((number, stop))
            yield _Piece(start, stop, "open", number, shown=f"<{child.tag}>" if child.content else None)
        elif child.nesting == -1:
            pair, first = opened.pop()
            short = child.type == "link_close" and content[start:stop] in ("]", "][]")
            # its text is its name, which must not change
            text = f"][{' '.join(content[first:start].split())}]" if short else ""
            shown = f"</{child.tag}>" if child.content else None
            yield _Piece(start, stop, "close", pair, text, shown)
        else:
            yield _Piece(start, stop, "break" if child.type in ("hardbreak", "boundary") else "lone")


def _in_backticks(text: str) -> str:
    """As code, which `data.mask_spans` masks, if it would not mask the text; of an element only the text in it."""
    if find_spans(text) == [(0, len(text))]:
        return text
    text = " ".join(_ANY_TAG.sub("", text).split() if text.startswith("<") else [text])
    return f"`{text.replace('`', chr(39))}`" if text else ""
