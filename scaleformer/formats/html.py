"""HTML: blocks of prose between tags, from the parser of Python's standard library, which reports positions.

Elements that hold code or no prose stay as they are, inline ones as spans; so do attributes and comments.
"""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html.parser import HTMLParser
from typing import Any

from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import CODE, Block, BlockBuilder
from scaleformer.formats.splicing import decode, encode, escape_html, make_edits, splice
from scaleformer.system.errors import DataError

# Other elements end a sentence.
_INLINE = frozenset((
    "a", "abbr", "acronym", "audio", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i",
    "iframe", "img", "input", "ins", "kbd", "map", "mark", "math", "meter", "object", "output", "picture", "progress",
    "q", "ruby", "rp", "rt", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "svg", "time", "tt", "u",
    "var", "video", "wbr",
))  # fmt: skip
_VOID = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
))  # fmt: skip
_KEPT = frozenset((
    "code", "iframe", "kbd", "listing", "math", "object", "pre", "samp", "script", "style", "svg", "template",
    "textarea", "tt", "var", "xmp",
))  # fmt: skip
_KINDS = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6", "title", "caption"), "title"),
    **dict.fromkeys(("li", "dt", "dd", "option"), "item"),
    **dict.fromkeys(("td", "th"), "cell"),
}
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)|<(/?)([A-Za-z][\w.:-]*)(?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)?(?<!/)>", re.DOTALL
)  # not one that closes itself, or a comment
_DEEPEST = 2000  # the most open elements


class HtmlFile:
    """The blocks of an HTML file. Raises DataError if it is not text or is nested too deeply."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content, self._encoding = decode(content, name, declared=True)
        self.blocks = list(html_blocks(self.content, name))
        self.left: Counter[str] = Counter()

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the changes of each block."""
        return encode(splice(self.content, make_edits(self.content, self.blocks, changes, escape_html)), self._encoding)


def html_blocks(content: str, name: str, offset: int = 0) -> Iterator[Block]:
    """The blocks of prose of some HTML; positions start at `offset`. Raises DataError with name and line if nested
    too deeply."""
    parser = _Parser(content)
    builder, open_elements, pairs = BlockBuilder(), [], 0
    kept: tuple[str, int, int] | None = None  # name, place and depth of an element that is not translated
    code: list[str] = []  # the text in it
    for kind, tag, start, stop in parser.events():
        if kind == "start":
            pairs += 1
            open_elements.append((tag, pairs))
            if len(open_elements) > _DEEPEST:
                line = content.count("\n", 0, start) + 1
                raise DataError(f"{name}:{line}: more than {_DEEPEST:,} nested elements: not a page of prose")
        pair = _close(open_elements, tag) if kind == "end" else pairs if kind == "start" else None
        if kept is not None:
            if len(open_elements) >= kept[2]:
                code.append(tag if kind == "character" else content[start:stop] if kind == "text" else "")
                continue
            own = tag == kept[0]  # otherwise an enclosing element has ended
            if kept[0] in _INLINE:
                end = stop if own else start
                text = " ".join("".join(code).split())
                shown = f"`{text}`" if text else ""
                builder.span(content[kept[1] : end], kept[1] + offset, end + offset, shown=shown)
            elif kept[0] == "pre":
                yield CODE
            kept = None
            if own:
                continue
        if kind == "boundary" or (kind in ("start", "end") and tag not in _INLINE):
            if block := builder.build():
                yield block
            builder = BlockBuilder(next((_KINDS[e] for e, _ in reversed(open_elements) if e in _KINDS), "paragraph"))
        if kind == "start" and (tag in _KEPT or start in parser.untranslated):
            kept, code = (tag, start, len(open_elements)), []
        elif kind == "text":
            builder.text(content[start:stop], start + offset)
        elif kind == "character":
            builder.character(tag, start + offset, stop + offset, content[start:stop])
        elif kind == "lone" or (kind in ("start", "end") and tag in _INLINE):
            # without attributes, which often differ between languages
            shown = f"<{'/' * (kind == 'end')}{tag}>" if tag else content[start:stop]
            builder.span(content[start:stop], start + offset, stop + offset, pair, kind == "start", shown=shown)
    if block := builder.build():
        yield block


@lru_cache(maxsize=4)
def find_elements(content: str) -> dict[int, tuple[int, int, bool]]:
    """For each element with both tags, by the place of its first: where its last begins and ends, and whether it is not
    translated."""
    opened: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    found = {}
    for tag in _TAG.finditer(content):
        name = (tag[2] or "").lower()
        if name and not tag[1]:
            kept = name in _KEPT or ("translate" in tag[0].lower() and _is_untranslated(tag[0]))
            opened[name].append((tag.start(), kept))
        elif opened[name]:
            first, kept = opened[name].pop()
            found[first] = *tag.span(), kept
    return found


def _is_untranslated(tag: str) -> bool:
    parser = _Parser(tag)
    return any(start in parser.untranslated for _, _, start, _ in parser.events())


def _close(open_elements: list[tuple[str, int]], name: str) -> int | None:
    """Close the innermost element of that name and those inside it; returns its number, None if none is open."""
    for depth in range(len(open_elements) - 1, -1, -1):
        if open_elements[depth][0] == name:
            number = open_elements[depth][1]
            del open_elements[depth:]
            return number
    return None


class _Parser(HTMLParser):
    """Tags, texts, references and the rest, with their places; untranslated: places of elements marked so."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=False)
        self.untranslated: set[int] = set()
        self._found: list[tuple[str, str, int]] = []
        self._content = content
        self._lines = [0, *(found.end() for found in re.finditer("\n", content))]

    def events(self) -> Iterator[tuple[str, str, int, int]]:
        """start | end | lone (tags), text, character (a reference), boundary; the tag or character; where it begins
        and ends."""
        self.feed(self._content)
        self.close()
        ends = [place for _, _, place in self._found[1:]]
        for (kind, what, place), end in zip(self._found, [*ends, len(self._content)], strict=bool(self._found)):
            yield kind, what, place, end

    def _add(self, kind: str, what: str = "") -> None:
        line, column = self.getpos()
        self._found.append((kind, what, self._lines[line - 1] + column))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start" if tag not in _VOID else "lone" if tag in _INLINE else "boundary", tag)
        given = dict(attrs)
        if given.get("translate") == "no" or "notranslate" in (given.get("class") or "").split():
            self.untranslated.add(self._found[-1][2])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("lone" if tag in _INLINE else "boundary", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("boundary" if tag in _VOID else "end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._reference(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._reference(f"&#{name};")

    def _reference(self, written: str) -> None:
        character = html.unescape(written)
        self._add(*(("character", character) if len(character) == 1 else ("lone", "")))

    def _boundary(self, *_: Any, **__: Any) -> None:
        self._add("boundary")

    handle_comment = handle_decl = handle_pi = unknown_decl = _boundary
