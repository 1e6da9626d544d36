"""HTML: blocks of prose between tags, and the attributes that are prose.

Elements that hold code or no prose stay as they are, inline ones as spans; so do other attributes and comments.
Readings over characters (ruby) are left out of what is translated, soft hyphens and <wbr> too.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from scaleformer.formats.blocks import CODE, MARK, Block, BlockBuilder, Span
from scaleformer.formats.html_elements import KEPT, PHRASING, Attributes, Event, OpenElements, Place, names, scan
from scaleformer.formats.restoring import Change
from scaleformer.formats.splicing import Edit, add_referenced, decode, encode, escape_html, make_edits, splice

_HIDDEN = names("link meta script style template")  # are not seen in their sentence
_APART = names("audio canvas datalist noscript select video")  # their text is none of their sentence
_CONTROLS = ("button", "label")  # one right after the other are two blocks
_READINGS = ("rp", "rt", "rtc")
_KINDS = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6", "title", "caption"), "title"),
    **dict.fromkeys(("li", "dt", "dd", "option"), "item"),
    **dict.fromkeys(("td", "th"), "cell"),
}
_PROSE = names(
    """alt aria-description aria-label aria-placeholder aria-roledescription aria-valuetext label placeholder summary
    title"""
)
_DESCRIPTIONS = ("description", "keywords", "og:description", "og:title", "twitter:description", "twitter:title")
_ROOTS = ("", "html", "body", "ncx", "package")  # say of which language the file is
# A capital in an element of its own, before the rest of its word.
_INITIAL = re.compile(
    r"((?:<(?:b|big|em|font|i|small|span|strong)\b[^<>]{0,300}(?<!/)>){1,3})([^\w\s<>&]?\w)((?:</\w{1,6}>){1,3})(?=\w)"
)
# What a file says about itself, in YAML or TOML, before its text. A blank line follows a mere rule.
FRONT_MATTER = re.compile(
    r"\A\ufeff?(?:(---)|\+\+\+)[ \t]*\r?\n(?![ \t]*\r?\n).*?^(?(1)(?:---|\.\.\.)|\+\+\+)[ \t]*(?=\r?$)",
    re.MULTILINE | re.DOTALL,
)
_FIRST = re.compile(r"[^\w\s<>&]?\w")
_NO_READING = "readings over characters (ruby) left out"
_NO_INITIAL = "initials that lost their form"


class HtmlFile:
    """The blocks of an HTML file; language: of the translation, for its `lang`. Raises DataError if it is not text or
    is nested too deeply."""

    def __init__(self, content: bytes, name: str, language: str = "") -> None:
        self.content, self._encoding = decode(content, name, declared=True)
        self.language = language
        front = FRONT_MATTER.match(self.content)
        self.blocks = list(html_blocks(self.content, name, front.end() if front else 0))
        self.left: Counter[str] = Counter()

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the changes of each block."""
        edits = html_edits(self.content, self.blocks, changes, self.left, self.language)
        return encode(splice(self.content, edits), self._encoding)


@dataclass(frozen=True)
class _Value(Block):
    """The text of an attribute; place: of its value, with quotes."""

    place: Place = (0, 0)


class _Markup(str):
    """Markup of the file, from `start` on."""

    start: int


def html_blocks(content: str, name: str, start: int = 0, stop: int | None = None) -> Iterator[Block]:
    """The blocks of prose of content[start:stop], which is HTML; those of attributes and of elements apart come before
    the block around them. Raises DataError with name and line if nested too deeply."""
    stop = len(content) if stop is None else stop
    return _Reader(content, name).read(chain(scan(content, start, stop), [Event("eof", "", stop, stop)]))


class _Reader:
    def __init__(self, content: str, name: str) -> None:
        self._content, self._name = content, name
        self._open = OpenElements()
        self._builder = BlockBuilder()
        self._begun = False  # whether the block has text
        self._control = False  # whether it ends with a control
        self._ruby: tuple[int, int, int] | None = None  # its number and place, and the number of parts before it
        self._around: list[tuple[int, int, BlockBuilder]] = []  # elements apart, and the blocks that they stand in

    def read(self, events: Iterable[Event]) -> Iterator[Block]:
        kept: tuple[int, Event] | None = None  # an element that is not translated
        inside: list[str] = []  # the text in it
        done = 0
        for event in events:
            kind, tag, start, stop = event
            if start < done:
                continue
            number = 0  # of the element that the tag begins or ends
            if kind == "start":
                number = self._open.start(tag, self._name, self._content, start)
            elif kind == "end":
                number = self._open.end(tag)
            elif kind == "eof":
                self._open.clear()
            if kept is not None:
                if kept[0] in self._open:
                    inside += [self._content[start:stop]] if kind == "text" else []
                    continue
                own = number == kept[0]  # otherwise an enclosing element has ended, or the next one has begun
                yield from self._keep(kept[1], stop if own else start, "".join(inside))
                kept = None
                if own:
                    if tag not in PHRASING:
                        self._renew(stop)
                    continue
            if (yield from self._finish(number, start, stop)):
                continue
            if kind == "text":
                add_referenced(self._builder, self._content, start, stop)
                if not self._content[start:stop].isspace():
                    self._begun, self._control = True, False
                continue
            if kind == "other":
                self._add_span(start, stop)
                continue
            if tag not in PHRASING or (kind == "start" and tag in _CONTROLS and self._control):
                yield from self._flush(start)
            self._control = kind == "end" and tag in _CONTROLS
            attributes = Attributes(self._content, event)
            if not attributes.untranslated:
                yield from self._values(tag, attributes)
            if kind == "start" and (attributes.untranslated or tag in KEPT or (self._ruby and tag in _READINGS)):
                kept, inside = (number, event), []
            elif tag not in PHRASING or tag == "wbr" or (self._ruby and tag == "rb"):
                pass
            elif kind == "start" and tag == "ruby" and self._ruby is None:
                self._ruby = number, start, len(self._builder)
            elif kind == "start" and tag in _APART:
                self._around.append((number, start, self._builder))
                self._renew(start)
            elif kind == "start" and (end := self._add_initial(start)):
                done = end
            else:
                # without attributes, which often differ between languages
                shown = "" if tag in _HIDDEN else f"<{'/' * (kind == 'end')}{tag}>"
                self._add_span(start, stop, number or None, kind == "start", shown)

    def _keep(self, event: Event, stop: int, text: str) -> Iterator[Block]:
        """Add an element that is not translated and ends at `stop`."""
        text = " ".join(html.unescape(text).split()) if event.tag not in _HIDDEN else ""
        if event.tag in PHRASING and not (self._ruby and event.tag in _READINGS):
            self._add_span(event.start, stop, shown=f"`{text}`" if text else "")
        elif event.tag == "pre":
            yield CODE

    def _finish(self, number: int, start: int, stop: int) -> Generator[Block, None, bool]:
        """End the ruby and the elements apart that are no longer open. Returns whether a tag, with the number of its
        element, did so and is done with."""
        own = False
        if self._ruby and self._ruby[0] not in self._open:
            own = number == self._ruby[0]
            self._end_ruby(stop if own else start)
        while self._around and self._around[-1][0] not in self._open:
            yield from self._flush(start)
            own = number == self._around[-1][0]
            _, begin, self._builder = self._around.pop()
            self._begun = True
            self._add_span(begin, stop if own else start)
        return own

    def _end_ruby(self, place: int) -> None:
        if self._ruby:
            _, start, first = self._ruby
            self._builder.enclose(first, start, place)
            self._ruby = None

    def _flush(self, place: int) -> Iterator[Block]:
        """The block that ends at this place."""
        self._end_ruby(place)
        if block := self._builder.build():
            yield block
        self._renew(place)

    def _renew(self, place: int) -> None:
        self._end_ruby(place)
        kind = next((_KINDS[name] for name in reversed(self._open.values()) if name in _KINDS), "paragraph")
        self._builder, self._begun, self._control = BlockBuilder(kind), False, False

    def _add_span(self, start: int, stop: int, pair: int | None = None, opens: bool = False, shown: str = "") -> None:
        content = _Markup(self._content[start:stop])
        content.start = start
        self._builder.span(content, start, stop, pair, opens, shown=shown)

    def _add_initial(self, start: int) -> int:
        """Add a capital in an element of its own, before the rest of its word; returns where it ends, 0 for none."""
        found = None if self._begun else _INITIAL.match(self._content, start)
        if found is None or found[1].count("<") != found[3].count("<") or not found[2][-1].isupper():
            return 0
        first = len(self._builder)
        self._builder.text(found[2], found.start(2))
        self._builder.enclose(first, start, found.end())
        self._open.popitem()
        return found.end()

    def _values(self, tag: str, attributes: Attributes) -> Iterator[Block]:
        """The attributes of a tag that are prose."""
        prose = _PROSE if tag not in ("link", "style") else frozenset()  # their titles are names of style sheets
        if tag == "input" and attributes.given("type") in ("button", "reset", "submit"):
            prose |= {"value"}
        if tag == "meta" and (attributes.given("name") or attributes.given("property")) in _DESCRIPTIONS:
            prose |= {"content"}
        for name, (start, stop) in attributes.items():
            if name in prose:
                quoted, builder = self._content[start] in "\"'", BlockBuilder("item")
                add_referenced(builder, self._content, start + quoted, stop - quoted)
                if block := builder.build():
                    yield _Value(**vars(block), place=(start, stop))


def html_edits(
    content: str, blocks: Sequence[Block], changes: Sequence[Sequence[Change]], left: Counter[str], language: str = ""
) -> list[Edit]:
    """The changes of blocks as edits of the content, with the language of the translation, if known, where the content
    names its own. Counts what is left out."""
    edits = list(language_edits(content, language)) if any(changes) else []  # in order

    def whole(part: str | Span) -> str | Span:
        """A part with the edits inside it, whose blocks come before that around them."""
        if isinstance(part, str) or not isinstance(part.content, _Markup):
            return part
        start, stop = part.content.start, part.content.start + len(part.content)
        inside = edits[bisect_left(edits, (start,)) : bisect_left(edits, (stop,))]
        return replace(part, content=splice(content, inside, start, stop))

    for block, some in zip(blocks, changes, strict=True):
        if isinstance(block, _Value) and some:
            start, stop = block.place
            quote = content[start] if content[start] in "\"'" else ""
            made = make_edits(content, [block], [some], html.escape)
            value = splice(content, made, start + len(quote), stop - len(quote))
            insort(edits, (start, stop, f"{quote or chr(34)}{value}{quote or chr(34)}"))
            continue
        for change in some:
            found = replace(change, parts=tuple(map(whole, change.parts)))
            ((start, stop, text),) = make_edits(content, [block], [[found]], escape_html)
            if readings := len(re.findall("<rt[ >]", content[start:stop], re.IGNORECASE)):
                left[_NO_READING] += readings
            initial = _INITIAL.match(content, start) if block.text[change.start] != MARK else None
            if initial and (first := _FIRST.match(text)):
                text = f"{initial[1]}{first[0]}{initial[3]}{text[first.end() :]}"
            elif initial:
                left[_NO_INITIAL] += 1
            insort(edits, (start, stop, text))
    return edits


def language_edits(content: str, language: str) -> Iterator[Edit]:
    """Edits that write a language, if it is known, where the content names the language of the whole: in `lang` and
    `xml:lang`, and in the `dc:language` of a book."""
    own: set[str] = set()
    tag = ""
    for event in scan(content) if language else ():
        attributes = Attributes(content, event)
        marks = [
            attributes[name] for name in ("lang", "xml:lang") if name in attributes and not attributes.untranslated
        ]
        if event.kind == "text" and tag.endswith(":language"):
            marks = [(event.start, event.stop)]
        for place in marks:
            named = content[slice(*place)].strip("\"' \n").lower().partition("-")[0]
            own |= {named} if event.tag in _ROOTS else set()
            if named and named in own:
                yield *place, f'"{language}"' if event.tag else language
        tag = event.tag
