"""Markdown (CommonMark with tables and strikethrough): markdown-it-py finds the prose and its position.

Code, links, images (except their alternative text), HTML, footnote marks, front matter and block marks stay as they
are. A translation that would change the structure of its block is tried with its marks escaped, then dropped.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from scaleformer.formats.html import html_blocks
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import CODE, Block, BlockBuilder, OpenTags
from scaleformer.formats.splicing import Edit, decode, escape_html, make_edits, render, splice
from scaleformer.system.errors import DataError

_DEEPEST = 255  # levels; a list takes two
# What a file says about itself, in YAML or TOML, before its text. A blank line follows a mere rule.
_FRONT_MATTER = re.compile(
    r"\A\ufeff?(---|\+\+\+)[ \t]*\r?\n(?![ \t]*\r?\n).*?^\1[ \t]*(?=\r?$)", re.MULTILINE | re.DOTALL
)
_LINE_END = re.compile(r"\r\n?|\n")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]+\]:?")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)")
_escape = partial(re.compile(r"[\\`*_\[\]<>~|]|&(?=#?\w+;)").sub, r"\\\g<0>")
# what would turn the next characters into others
_escape_least = partial(re.compile(r"\\(?=[!-/:-@\[-`{-~]|$)|&(?=#?\w+;)").sub, r"\\\g<0>")
_BLOCK_MARK = re.compile(r"^(\d*)([-+#=:.)>~])")
_FORMS = {"heading_open": "heading", "th_open": "cell", "td_open": "cell"}
_UNREAD = {"html_block": "html", "fence": "code", "code_block": "code"}
_KINDS = {"heading": "title", "underlined": "title", "cell": "cell"}


class MarkdownFile:
    """The blocks of a Markdown file. Raises DataError if it is not text or is nested too deeply for the parser; left
    counts translations that would change its structure."""

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
                edits += make_edits(self.content, [block], [some], escape_html)
            else:
                self._edit(block, hole, some, inside[hole])
        edits += [inline.raw(edit, self.content) for inline, some in inside.items() for edit in some]
        return splice(self.content, edits).encode()

    def _find(self, name: str) -> Iterator[tuple[Block, _Inline | None]]:
        front = _FRONT_MATTER.match(self.content)
        skipped = front.end() if front else 0
        # Its lines become empty, so that later lines keep their numbers.
        text = "\n" * len(_LINE_END.findall(self.content[:skipped])) + re.sub(r"\A\ufeff", " ", self.content[skipped:])
        lines = [0, *(found.end() for found in _LINE_END.finditer(self.content))]
        lines += [len(self.content)] if lines[-1] < len(self.content) or len(lines) == 1 else []
        row = cursor = 0
        for token, form, kind in self._parser.blocks(text, name):
            if form == "code":
                yield CODE, None
            elif form == "html":
                first, last = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
                yield from ((block, None) for block in html_blocks(self.content[first:last], name, first))
            elif token.content.strip() and token.map[0] < len(lines) - 1:
                if form != "cell" or token.map[0] != row:
                    row, cursor = token.map[0], lines[token.map[0]]
                inline = _Inline(token, form, self.content, lines, cursor)
                cursor = inline.places[-1]
                for block in inline.blocks(kind):
                    yield block, inline

    def _edit(self, block: Block, inline: _Inline, changes: Sequence[Change], inside: list[Edit]) -> None:
        """Add the changes of a block to the edits of a heading, paragraph or cell."""
        for change in changes:
            for escape in (_escape,) if inline.leads else (_escape_least, _escape):
                text = render(block, change, inline.line_end, escape, letters=True)
                if (inline.form != "cell" or inline.leads) and change.start == 0 and escape is _escape:
                    text = _BLOCK_MARK.sub(r"\1\\\2", text)
                edit = *block.origin(change.start, change.stop), text
                if self._parser.is_alike(inline.content, inline.form, [*inside, edit]):
                    inside.append(edit)
                    break
            else:
                self.left["segments left as they are, since their translation would change the structure"] += 1


class _Inline:
    """The content of a heading, paragraph or cell as parsed; places: where each of its characters begins in the file,
    and where the last ends; leads: whether it is a cell that begins its line. In a cell a `|` has a backslash in the
    file."""

    def __init__(self, token: Any, form: str, content: str, lines: Sequence[int], start: int) -> None:
        self.children, self.form = token.children, form
        self.content: str = token.content
        self.places: list[int] = []
        for number, line in enumerate(self.content.split("\n"), token.map[0]):
            first, stop = lines[number], lines[number + 1]
            shown = line.strip()
            written = shown.replace("|", r"\|") if form == "cell" else shown
            if form in ("paragraph", "underlined"):  # the text before it marks the enclosing blocks
                place = first + len(content[first:stop].rstrip()) - len(written)
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
            self._add(builder, place, piece.start)
            written = self.content[piece.start : piece.stop]
            if piece.kind == "break":
                if block := builder.build():
                    yield block
                builder = BlockBuilder(kind)
            elif piece.kind == "character":
                builder.character(piece.text, piece.start, piece.stop, written)
            else:
                span = piece.text or written
                builder.span(span, piece.start, piece.stop, piece.pair, piece.kind == "open", bool(piece.text), written)
            place = piece.stop

    def _add(self, builder: BlockBuilder, start: int, stop: int) -> None:
        for found in _FOOTNOTE.finditer(self.content, start, stop):
            builder.text(self.content[start : found.start()], start)
            if found.start() or not found[0].endswith(":"):  # a note begins with its mark
                builder.span(found[0], *found.span())
            start = found.end()
        builder.text(self.content[start:stop], start)


class _Piece(NamedTuple):
    """An inline element that is not prose; kind: open | close | lone | break | character; text: the character, or what
    is written for it with its translation, if not the same."""

    start: int
    stop: int
    kind: str
    pair: int | None = None
    text: str = ""


def _pieces(children: Sequence[Any], content: str) -> Iterator[_Piece]:
    """All inline elements that are not prose, in order."""
    opened: list[tuple[int, int]] = []  # numbers, and where their content begins
    tags = OpenTags()
    for number, child in enumerate(children):
        if "place" not in child.meta or child.type in ("text", "softbreak"):
            continue
        start, stop = child.meta["place"]
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
            yield _tag(child.content, start, stop, number, tags)
        elif child.nesting == 1:
            opened.append((number, stop))
            yield _Piece(start, stop, "open", number)
        elif child.nesting == -1:
            pair, first = opened.pop()
            short = child.type == "link_close" and content[start:stop] in ("]", "][]")
            # its text is its name, which must not change
            yield _Piece(start, stop, "close", pair, f"][{' '.join(content[first:start].split())}]" if short else "")
        else:
            yield _Piece(start, stop, "break" if child.type == "hardbreak" else "lone")


def _tag(written: str, start: int, stop: int, number: int, open_tags: OpenTags) -> _Piece:
    """An HTML tag within prose; open_tags: those not yet closed."""
    tag = _TAG.match(written)
    if tag is None or written.endswith("/>"):
        return _Piece(start, stop, "lone")
    if not tag[1]:
        open_tags.open(tag[2], number)
        return _Piece(start, stop, "open", number)
    pair = open_tags.close(tag[2])
    return _Piece(start, stop, "lone" if pair is None else "close", pair)


class _Parser:
    """markdown-it-py with the positions of inline elements."""

    def __init__(self, name: str) -> None:
        try:
            markdown = importlib.import_module("markdown_it")
        except ImportError:
            message = f"{name}: reading Markdown needs another package: pip install 'scaleformer[documents]'"
            raise DataError(message) from None
        self._markdown = markdown.MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
        self._markdown.core.ruler.disable("text_join")  # this rule loses the positions of literal marks
        ruler = self._markdown.inline.ruler
        for rule, function in zip(self._markdown.get_active_rules()["inline"], ruler.getRules(""), strict=True):
            ruler.at(rule, _placed(rule, function))
        self._env: dict[str, Any] = {}

    def blocks(self, text: str, name: str) -> Iterator[tuple[Any, str, str]]:
        """Tokens of blocks with content, their form (heading | underlined | paragraph | cell | html | code), and their
        kind as in `Block`."""
        tokens = None
        with suppress(RecursionError):
            tokens = self._markdown.parse(text, self._env)
        if tokens is None or any(token.level >= _DEEPEST - 1 for token in tokens):  # the parser drops deeper levels
            raise DataError(f"{name}: quotations, lists or brackets {_DEEPEST // 2} deep or more: nest them less")
        items, form = 0, "paragraph"
        for token in tokens:
            items += token.nesting * (token.tag == "li")
            if token.type in _UNREAD:
                yield token, _UNREAD[token.type], ""
            elif token.type == "inline":
                yield token, form, _KINDS.get(form, "item" if items else "paragraph")
            form = "underlined" if token.markup in ("=", "-") else _FORMS.get(token.type, "paragraph")

    def is_alike(self, content: str, form: str, edits: Sequence[Edit]) -> bool:
        """Whether the edits leave the structure of a block unchanged (forms as in `blocks`)."""
        with suppress(RecursionError):
            return self._structure(content, form) == self._structure(splice(content, edits), form)
        return False

    def _structure(self, text: str, form: str) -> list[str]:
        inline = form in ("heading", "cell")
        read: Callable[..., Any] = self._markdown.parseInline if inline else self._markdown.parse
        shapes = []
        for token in read(f"{text}\n---" if form == "underlined" else text, dict(self._env)):
            broken = form == "heading" and "\n" in token.content
            shapes.append(f"{token.type} {token.tag} {broken}")
            # the target language may order them differently
            shapes += sorted(
                repr((child.type, child.markup, sorted(child.attrs.items()), child.content * (child.type != "image")))
                for child in token.children or []
                if child.type not in ("text", "text_special", "softbreak")
            )
        return shapes


def _placed(rule: str, function: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
    """The rule, extended to record in its tokens their positions in the text."""

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
