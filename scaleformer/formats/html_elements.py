"""HTML as tags and texts with their places, and the elements that are open at each of them.

End tags may be left out, as in the Living Standard of WHATWG (13.2.5, tokenization, and 13.2.6, tree construction,
except what moves content elsewhere). XHTML is read alike, and its `<title/>` is an empty element. No parser does all
this: html5lib gives no places, tree-sitter-html lacks half of the optional end tags, html.parser all of them, and its
time is quadratic for unclosed tags in many versions of Python. Here it is linear in any input.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from scaleformer.system.errors import DataError

Place = tuple[int, int]  # start, stop


def names(text: str) -> frozenset[str]:
    """Names that spaces separate."""
    return frozenset(text.split())


#: Phrasing content, old elements included, but <br>: other elements end a sentence.
PHRASING = names(
    """a abbr acronym area audio b bdi bdo big blink button canvas cite code data datalist del dfn em embed font i
    iframe img input ins kbd label link map mark math meta meter nobr noembed noscript object output param picture
    progress q rb rp rt rtc ruby s samp script select slot small source span strike strong style sub sup svg
    template textarea time track tt u var video wbr"""
)
#: What is not translated.
KEPT = names(
    """code docauthor doctitle iframe kbd listing math noembed noframes object pre samp script style svg template
    textarea tt var xmp"""
)
_VOID = names("area base br col embed hr img input link meta param source track wbr")
_RAW = names("iframe noembed noframes plaintext script style textarea title xmp")  # hold text only
_DEEPEST = 2000  # the most open elements

_BLOCKS = names(
    """address article aside blockquote body center dd details dialog dir div dl dt fieldset figcaption figure footer
    form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext pre search section summary
    table ul xmp"""
)
_HEADINGS, _CELLS, _ROWS = names("h1 h2 h3 h4 h5 h6"), names("caption colgroup td th"), names("tbody tfoot thead")
_SCOPE = names("applet caption html marquee object table td template th")
_TABLE = frozenset(("table", "template"))
_SPECIAL = _BLOCKS | _SCOPE | {"button", "select"}
_LISTS = _SPECIAL - {"address", "div", "p"}
#: Start tags, the elements that they end, and those whose inside they do not look out of.
_ENDED = (
    ({"li"}, {"li"}, _LISTS - {"li"}),
    ({"dd", "dt"}, {"dd", "dt"}, _LISTS - {"dd", "dt"}),
    (_BLOCKS, {"head", "p"}, _SCOPE | {"button"}),
    (_HEADINGS, _HEADINGS, _SPECIAL - _HEADINGS),
    *(({name}, {name}, _SCOPE) for name in ("a", "button", "nobr", "select")),
    ({"option", "hr"}, {"option"}, _SCOPE | {"datalist", "optgroup", "select"}),
    ({"optgroup", "hr"}, {"optgroup", "option"}, _SCOPE | {"datalist", "select"}),
    ({"rb", "rtc"}, {"rb", "rp", "rt", "rtc"}, _SCOPE | {"ruby"}),
    ({"rp", "rt"}, {"rb", "rp", "rt"}, _SCOPE | {"rtc", "ruby"}),
    ({"td", "th"}, _CELLS, _TABLE | {"tr"}),
    ({"tr"}, _CELLS | {"tr"}, _TABLE | _ROWS),
    (_ROWS | {"caption", "colgroup"}, _CELLS | _ROWS | {"tr"}, _TABLE),
)
_ENDS: dict[str, list[tuple[frozenset[str], frozenset[str]]]] = {}
for _starts, _ended, _until in _ENDED:
    for _name in _starts:
        _ENDS.setdefault(_name, []).append((frozenset(_ended), frozenset(_until)))
_REACH = dict.fromkeys(_CELLS | _ROWS | {"table", "tr"}, _TABLE)  # of end tags; _SCOPE for others
_REACH |= {"li": _SCOPE | {"ol", "ul"}, "p": _SCOPE | {"button"}, "template": frozenset()}

# No alternative gives up after it has read far: what has no end goes on to that of the file.
_MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?(?:php\b|=).*?(?:\?>|\Z)|<(?:[!?]|/(?![A-Za-z]))[^>]*(?:>|\Z)"
    r"|<(?P<end>/?)(?P<tag>[A-Za-z][^\s/>]*)"
    r"(?:[^=/>]+|/(?!>)|=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>][^\s>]*)?)*(?P<empty>/?)(?P<close>>|\Z)",
    re.DOTALL,
)
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)|<(/?)([A-Za-z][\w.:-]*)(?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)?(?<!/)>", re.DOTALL
)  # not one that closes itself, or a comment
_ATTRIBUTE = re.compile(r"(?<![^\s\"'/])([^\s\"'<>/=]+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>][^\s>]*)")


class Event(NamedTuple):
    """content[start:stop]; kind: start | end | lone (tags without an end), text, or other (comments and the like)."""

    kind: str
    tag: str
    start: int
    stop: int


def scan(content: str, place: int = 0, end: int | None = None) -> Iterator[Event]:
    """All tags, texts and the rest of content[place:end], in order and without gaps."""
    end = len(content) if end is None else end
    while place < end:
        found = _MARKUP.search(content, place, end)
        start, stop = found.span() if found else (end, end)
        if start > place:
            yield Event("text", "", place, start)
        if found is None:
            return
        tag = (found["tag"] or "").lower()
        lone = found["empty"] or tag in _VOID
        kind = "other" if not found["close"] else "lone" if lone else "end" if found["end"] else "start"
        yield Event(kind, tag, start, stop)
        place = stop
        if kind == "start" and tag in _RAW:
            closing = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(content, stop, end)
            place = closing.start() if closing and tag != "plaintext" else end
            if place > stop:
                yield Event("text", "", stop, place)


class Attributes(dict[str, Place]):
    """Where the values of the attributes of a tag stand, with their quotes, by their names; none for an end tag."""

    def __init__(self, content: str, event: Event) -> None:
        self._content = content
        if event.kind in ("start", "lone"):
            for found in _ATTRIBUTE.finditer(content, event.start + 1 + len(event.tag), event.stop):
                self.setdefault(found[1].lower(), found.span(2))

    def given(self, name: str) -> str:
        """The value of an attribute in small letters, "" without one."""
        return self._content[slice(*self.get(name, (0, 0)))].strip("\"' ").lower()

    @property
    def untranslated(self) -> bool:
        """Whether they mark their element as not to be translated."""
        return self.given("translate") == "no" or "notranslate" in self.given("class").split()


@lru_cache(maxsize=4)
def find_elements(content: str) -> dict[int, tuple[int, int, bool]]:
    """For each element of HTML inside another format with both tags, by the place of its first: where its last begins
    and ends, and whether it is not translated."""
    opened: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    found = {}
    for tag in _TAG.finditer(content):
        name = (tag[2] or "").lower()
        if name and not tag[1]:
            kept = name in KEPT or Attributes(content, Event("start", name, *tag.span())).untranslated
            opened[name].append((tag.start(), kept))
        elif opened[name]:
            first, kept = opened[name].pop()
            found[first] = *tag.span(), kept
    return found


class OpenElements(dict[int, str]):
    """Names of the open elements by their numbers, the innermost last."""

    last = 0

    def start(self, tag: str, name: str, content: str, place: int) -> int:
        """Open an element, whose tag ends others; returns its number. Raises DataError if it is nested too deeply."""
        for ended, until in _ENDS.get(tag, ()):
            found = None
            for number in reversed(self):
                if self[number] in ended:
                    found = number
                elif self[number] in until:
                    break
            if found is not None:
                self._pop(found)
        self.last += 1
        self[self.last] = tag
        if len(self) > _DEEPEST:
            line = content.count("\n", 0, place) + 1
            raise DataError(f"{name}:{line}: more than {_DEEPEST:,} nested elements: not a page of prose")
        return self.last

    def end(self, tag: str) -> int:
        """Close the innermost element that an end tag can mean, and those inside it; returns its number, 0 for none."""
        names = _HEADINGS if tag in _HEADINGS else {tag}
        until, across = _REACH.get(tag, _SCOPE), False
        for number in reversed(self):
            if self[number] in names:
                if across and tag not in _SPECIAL:  # a paragraph goes on when emphasis around it ends
                    del self[number]
                else:
                    self._pop(number)
                return number
            if self[number] in until:
                return 0
            across |= self[number] in _SPECIAL
        return 0

    def _pop(self, number: int) -> None:
        while self.popitem()[0] != number:
            pass
