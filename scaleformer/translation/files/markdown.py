"""Markdown (CommonMark with tables and strikethrough): markdown-it-py says what is prose, and where it stands.

Code, links, images (but for their alternative text), HTML, footnote marks, front matter and the marks of blocks stay as
they are. A translation that would change the structure of its block is tried with its own marks escaped, then left out.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scaleformer.data.align.blocks import DEEPEST
from scaleformer.data.errors import DataError
from scaleformer.translation.files.html import html_blocks, html_edit
from scaleformer.translation.files.segments import Block, BlockBuilder, Change
from scaleformer.translation.files.splicing import (
    Edit,
    decode,
    encode,
    line_breaks,
    render,
    splice,
)

_FRONT_MATTER = re.compile(r"\A\ufeff?(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*(?=\r?$)", re.MULTILINE | re.DOTALL)
_LINE_END = re.compile(r"\r\n?|\n")
_IN_TEXT = re.compile(r"\[\^[^\]\s]+\]:?|\\\|")  # marks of footnotes, and what stands for `|` in a cell
_MARKS = re.compile(r"([\\`*_\[\]<>~|]|&(?=#?\w+;))")
_BLOCK_MARK = re.compile(r"^(\d*)([-+#=:.)>~])")


class MarkdownFile:
    """The blocks of a Markdown file. Raises DataError where it is no text, or nested more deeply than the parser goes;
    left counts translations that would change its structure."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content, _ = decode(content, name)
        self.left: Counter[str] = Counter()
        self._parser = _Parser(name)
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
        front = _FRONT_MATTER.match(self.content)
        skipped = front.end() if front else 0
        # Its lines stay, empty, so that those behind it keep their numbers.
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
        """Add the changes of a block to the edits inside a heading, paragraph or cell."""
        for change in changes:
            breaks = [(share, "\n") for share, _ in line_breaks(block, change, inline.content)]
            for escape in (_escape_cell if inline.kind == "cell" else str, _escape):
                text = render(change, escape, breaks)
                if inline.kind != "cell" and change.start == 0 and escape is _escape:
                    text = _BLOCK_MARK.sub(r"\1\\\2", text)
                edit = *block.origin(change.start, change.stop), text
                if self._parser.is_alike(inline, [*inside, edit]):
                    inside.append(edit)
                    break
            else:
                self.left["segments left as they are, since their translation would change the structure"] += 1


def _escape(prose: str) -> str:
    return _MARKS.sub(r"\\\1", prose)


def _escape_cell(prose: str) -> str:
    return prose.replace("|", r"\|")


class _Inline:
    """The content of a heading, paragraph or cell as the parser has it; places: where in the file each of its
    characters begins, and where the last ends. In a cell a `|` is written with a backslash."""

    def __init__(self, token: Any, kind: str, content: str, lines: Sequence[int], start: int) -> None:
        self.token, self.kind = token, kind
        self.content: str = token.content.replace("|", r"\|") if kind == "cell" else token.content
        self.places: list[int] = []
        for number, line in enumerate(self.content.split("\n"), token.map[0]):
            first, stop = lines[number], lines[number + 1]
            written = content[first:stop].rstrip()
            shown = line.strip()
            if kind == "paragraph":  # what stands before it marks the blocks around
                place = first + len(written) - len(shown)
            else:
                begin = max(first, start) if kind == "cell" else content.index("#", first, stop) + 1
                place = content.index(shown, begin, stop)
            indent = len(line) - len(line.lstrip())
            self.places += [place] * indent + list(range(place, place + len(shown)))
            self.places += [place + len(shown)] * (len(line) - indent - len(shown) + 1)

    def raw(self, edit: Edit, content: str) -> Edit:
        """The edit of the content as one of the file: line breaks as they are written there."""
        start, stop, text = edit
        breaks = [content[self.places[i] : self.places[i + 1]] for i in range(start, stop) if self.content[i] == "\n"]
        parts = text.split("\n")
        written = parts[0] + "".join(break_ + part for break_, part in zip(breaks, parts[1:], strict=False))
        return self.places[start], self.places[stop - 1] + 1, written

    def blocks(self, parser: _Parser) -> Iterator[Block]:
        """The prose between hard line breaks."""
        builder, place = BlockBuilder(), 0
        for piece in [*parser.pieces(self.content, self.token), None]:
            start = piece.start if piece else len(self.content)
            for found in [*_IN_TEXT.finditer(self.content, place, start), None]:
                end = found.start() if found else start
                builder.text(self.content[place:end], place)
                if found and place == 0 and found.start() == 0 and found[0].endswith(":"):
                    place = found.end()  # the mark that a footnote begins with
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
                builder.span(span, piece.start, piece.stop, piece.pair, piece.kind == "open")
            place = piece.stop if piece else start


@dataclass(frozen=True)
class _Piece:
    """What stands in a line of prose and is none; kind: open | close | lone | break | character; content: of a
    character, or what is written where it is not what stands there."""

    start: int
    stop: int
    kind: str
    pair: int | None = None
    content: str = ""


class _Parser:
    """markdown-it-py with the places of what it finds within a line of prose."""

    def __init__(self, name: str) -> None:
        try:
            markdown = importlib.import_module("markdown_it")
        except ImportError:
            message = f"{name}: Markdown is read by another package: pip install 'scaleformer[documents]'"
            raise DataError(message) from None
        self._markdown = markdown.MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
        self._markdown.core.ruler.disable("text_join")  # which loses the places of marks that mean nothing
        ruler = self._markdown.inline.ruler
        for rule, function in zip(self._markdown.get_active_rules()["inline"], ruler.getRules(""), strict=True):
            ruler.at(rule, _placed(rule, function))
        self._env: dict[str, Any] = {}

    def blocks(self, text: str, name: str) -> Iterator[tuple[Any, str]]:
        """Tokens of blocks with content, and what they are: heading | paragraph | cell | html."""
        tokens = self._markdown.parse(text, self._env)
        if any(token.level >= DEEPEST - 1 for token in tokens):  # what is deeper the parser leaves out
            raise DataError(f"{name}: quotations or lists {DEEPEST // 2} deep or more: make them flatter")
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type == "html_block":
                yield token, "html"
            elif token.type == "inline":
                kinds = {"heading_open": "heading", "th_open": "cell", "td_open": "cell"}
                kind = kinds.get(before.type, "paragraph") if before else "paragraph"
                yield token, "paragraph" if before and before.markup in ("=", "-") and kind == "heading" else kind

    def pieces(self, content: str, token: Any) -> list[_Piece]:
        """All in a token that is no prose, in order."""
        shift = _shifts(token.content, content)
        found: list[_Piece] = []
        opened: list[tuple[int, int]] = []  # numbers, and where what they enclose begins
        tags: list[tuple[str, int]] = []
        for number, child in enumerate(token.children):
            if "place" not in child.meta or child.type in ("text", "softbreak"):
                continue
            start, stop = child.meta["place"]
            start -= child.type == "strong_open"  # each of two marks is a token, of which one is made empty
            stop += child.type == "strong_close"
            start, stop = shift[start], shift[stop]
            if child.markup == "autolink":
                found += [_Piece(start, stop, "lone")] if child.nesting == 1 else []
            elif child.type == "text_special" and len(child.content) == 1:
                found.append(_Piece(start, stop, "character", content=child.content))
            elif child.type == "image" and content.startswith(child.content, start + 2) and not _marked(child):
                end = start + 2 + len(child.content)
                found += [_Piece(start, start + 2, "open", number), _Piece(end, stop, "close", number)]
            elif child.type == "html_inline":
                found.append(_tag(child.content, start, stop, number, tags))
            elif child.nesting == 1:
                opened.append((number, stop))
                found.append(_Piece(start, stop, "open", number))
            elif child.nesting == -1:
                pair, first = opened.pop()
                short = child.type == "link_close" and content[start:stop] in ("]", "][]")
                # its text is its name, which stays
                name = f"][{content[first:start]}]" if short else ""
                found.append(_Piece(start, stop, "close", pair, name))
            else:
                found.append(_Piece(start, stop, "break" if child.type == "hardbreak" else "lone"))
        return found

    def is_alike(self, inline: _Inline, edits: Sequence[Edit]) -> bool:
        """Whether the content has the same structure with edits as without."""
        cell = inline.kind == "cell"
        texts = [inline.content, splice(inline.content, edits)]
        if cell and re.search(r"(?<!\\)\|", texts[1]):
            return False
        return len({self._structure(text.replace(r"\|", "|") if cell else text, inline.kind) for text in texts}) == 1

    def _structure(self, text: str, kind: str) -> str:
        read: Callable[..., Any] = self._markdown.parse if kind == "paragraph" else self._markdown.parseInline
        tokens = read(text, dict(self._env))
        shapes: list[tuple[Any, ...]] = []
        for token in tokens:
            shapes.append((token.type, token.tag, "\n" in token.content and kind == "heading"))
            # their order may be another one in the target language
            marks = [
                (child.type, child.markup, sorted(child.attrs.items()), child.content if child.type != "image" else "")
                for child in token.children or []
                if child.type not in ("text", "text_special", "softbreak")
            ]
            shapes += sorted(marks, key=repr)
        return repr(shapes)


def _shifts(shown: str, written: str) -> list[int]:
    """Where each place of what the parser has is in what is written: a cell's `|` has a backslash there."""
    if shown == written:
        return list(range(len(shown) + 1))
    shifts = [0]
    for character in shown:
        shifts.append(shifts[-1] + (2 if character == "|" else 1))
    return shifts


def _marked(image: Any) -> bool:
    return any(child.type not in ("text", "softbreak") for child in image.children or [])


def _tag(written: str, start: int, stop: int, number: int, open_tags: list[tuple[str, int]]) -> _Piece:
    """A tag of HTML among prose; open_tags: names and numbers of those without an end so far."""
    tag = re.match(r"<(/?)([A-Za-z][\w-]*)", written)
    if tag is None or written.endswith("/>"):
        return _Piece(start, stop, "lone")
    if not tag[1]:
        open_tags.append((tag[2], number))
        return _Piece(start, stop, "open", number)
    while open_tags and tag[2] in [name for name, _ in open_tags]:
        name, pair = open_tags.pop()
        if name == tag[2]:
            return _Piece(start, stop, "close", pair)
    return _Piece(start, stop, "lone")


def _placed(rule: str, function: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
    """The rule, which notes in the tokens that it makes where they stand in the text."""

    def placed(state: Any, silent: bool) -> bool:
        first, start = len(state.tokens), state.pos
        done = function(state, silent)
        if done and not silent and rule in ("emphasis", "strikethrough"):
            end = state.pos
            for token in reversed(state.tokens[first:]):
                if end > start:
                    token.meta = {"place": (end - len(token.content), end)}
                    end -= len(token.content)
        elif done and not silent:
            for token in state.tokens[first:]:
                if "place" not in token.meta and token.type != "text":
                    token.meta = {"place": (start, state.pos)}
                    if rule == "link":
                        label = state.md.helpers.parseLinkLabel(state, start, True)
                        token.meta = {"place": (start, start + 1) if token.nesting == 1 else (label, state.pos)}
        return done

    return placed
