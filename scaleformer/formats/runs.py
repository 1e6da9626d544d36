"""Runs of WordprocessingML: the items of a paragraph, their grouping, and their rewriting.

Source: ECMA-376, part 1, section 17.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

_RANGES = ("bookmark", "commentRange", "perm", "moveToRange", "customXmlInsRange")  # ...Start and ...End
_CODE = 9  # the most items of a field to search for its name
_UNDERLINED = re.compile(r"<[\w.-]*:?u[\s/>]")


@dataclass(frozen=True, eq=False)
class Run:
    """Start tag and properties as in the file; formatting: the visible ones."""

    tag: str
    properties: str
    formatting: str


@dataclass(frozen=True, eq=False)
class Item:
    """An item of a paragraph.

    kind   "text": a character of a run; "inside": something else in a run; "between": a tag or an element between
           runs; "format": the start or end of different formatting; "field": several items in one
    name   of the element; "(" and ")" around runs; "begin", "separate" and "end" of a field
    text   a character
    place  in the content of the file
    """

    kind: str
    name: str = ""
    text: str = ""
    place: tuple[int, int] = (0, 0)
    run: Run | None = None
    pair: int | None = None
    opens: bool = False
    inner: tuple[Item, ...] = ()

    @property
    def shown(self) -> str:
        """What a text to train on has in its place: text that is not translated looks like code."""
        text = "".join(item.text for item in self.inner)
        if text.strip() and self.pair is None:
            return f"`{text.strip()}`"
        return " " if text or self.name in ("tab", "br", "cr") else ""


class RunWriter:
    """Writes runs; prose: the formatting of text outside all spans."""

    def __init__(self, prose: Run, raw: Callable[[int, int], str]) -> None:
        self._raw = raw
        self._formats: list[tuple[int | None, Run]] = [(None, prose)]
        self._run: Run | None = None  # the open run
        self._text: list[str] = []  # its text, not yet written
        self._pieces: list[str] = []

    def put(self, item: Item) -> None:
        """Write an item unchanged."""
        if item.kind == "field":
            for inner in item.inner:
                self.put(inner)
        elif item.kind == "format":
            if item.opens and item.run:
                self._formats.append((item.pair, item.run))
            else:
                self._formats = [(pair, run) for pair, run in self._formats if pair != item.pair]
        elif item.kind == "text":
            self.text(item.text, item.run)
        else:
            self._enter(item.run)
            self._flush()
            self._pieces.append(self._raw(*item.place))

    def text(self, text: str, run: Run | None = None) -> None:
        """Write text in the given run, else with the current formatting."""
        if text:
            self._enter(run or self._formats[-1][1])
            self._text.append(text)

    def finished(self) -> str:
        """All that was written."""
        self._enter(None)
        return "".join(self._pieces)

    def _enter(self, run: Run | None) -> None:
        if run is self._run:
            return
        self._flush()
        if self._run is not None:
            self._pieces.append(f"</{_tag_name(self._run)}>")
        if run is not None:
            self._pieces += [run.tag, run.properties]
        self._run = run

    def _flush(self) -> None:
        if self._text and self._run is not None:
            name = f"{_tag_name(self._run).removesuffix('r')}t"
            text = html.escape("".join(self._text), quote=False)
            self._pieces.append(f'<{name} xml:space="preserve">{text}</{name}>')
        self._text = []


def _tag_name(run: Run) -> str:
    return re.split(r"[\s>]", run.tag[1:], maxsplit=1)[0]


def join_fields(items: list[Item], pairs: count[int], left: Counter[str], content: str) -> list[Item]:
    """Merge each field that begins and ends in the same element into one item, and neighbouring code; links keep two
    ends."""
    whole: dict[int, int] = {}  # where fields begin and end
    separators: dict[int, int] = {}
    around: list[int | None] = [None]
    begun: list[tuple[int, int | None]] = []
    for place, item in enumerate(items):
        if item.name == "(":
            around.append(item.pair)
        elif item.name == ")":
            around.pop()
        elif item.name == "begin":
            begun.append((place, around[-1]))
        elif item.name == "separate" and begun and begun[-1][1] == around[-1]:
            separators.setdefault(begun[-1][0], place)
        elif item.name == "end" and begun:
            begin, inside = begun.pop()
            if inside == around[-1]:
                whole[begin] = place
    found: list[Item] = []
    closes: dict[int, int] = {}
    place = 0
    while place < len(items):
        end, separator = whole.get(place), separators.get(place)
        if place in closes:
            found.append(Item("field", ")", inner=(items[place],), pair=closes[place]))
        elif items[place].name == "code" and found and found[-1].name == "code":
            found[-1] = replace(found[-1], inner=(*found[-1].inner, *items[place].inner))
        elif end is None:
            found.append(items[place])
        elif separator is not None and _is_link(content, items[place + 1 : min(separator, place + _CODE)]):
            closes[end] = next(pairs)
            inner = tuple(items[place : separator + 1])
            found.append(Item("field", "(", inner=inner, pair=closes[end], opens=True))
            place = separator
        else:
            left["fields"] += 1
            found.append(Item("field", inner=tuple(items[place : end + 1])))
            place = end
        place += 1
    return found


def _is_link(content: str, items: Sequence[Item]) -> bool:
    code = "".join(content[slice(*item.place)] for item in items if item.name == "instrText")
    return re.match(r"<[^>]*>\s*HYPERLINK\b", code) is not None


def pair_ranges(items: list[Item], pairs: count[int]) -> list[Item]:
    """Pair the starts and ends of bookmarks and other ranges within this paragraph."""
    begun: dict[str, int] = {}
    found: dict[int, int] = {}
    for place, item in enumerate(items):
        name, _, identity = item.name.partition(" ")
        kind = name.removesuffix("Start").removesuffix("End")
        if kind in _RANGES and name.endswith("Start"):
            begun[f"{kind} {identity}"] = place
        elif kind in _RANGES and (start := begun.pop(f"{kind} {identity}", None)) is not None:
            found[start] = found[place] = next(pairs)
    return [
        Item("between", item.name, place=item.place, pair=found[place], opens="Start" in item.name)
        if place in found
        else item
        for place, item in enumerate(items)
    ]


def mark_formats(items: list[Item], prose: str, pairs: count[int]) -> list[Item]:
    """Mark where formatting different from the prose begins and ends. No pair encloses only white space, or the end of
    an element around runs. Underlined white space, a line to write on, is one item."""
    starts: dict[int, int] = {}
    stops: dict[int, int] = {}
    blanks: dict[int, int] = {}
    current: str | None = None
    first = last = 0

    def finish() -> None:
        if current is None or current == prose:
            return
        if all(item.text.isspace() for item in items[first : last + 1]):
            blanks[first] = last
        else:
            starts[first] = stops[last] = next(pairs)

    for place, item in enumerate(items):
        if item.name in ("(", ")"):
            finish()
            current = None
        if item.kind != "text" or item.run is None:
            continue
        formatting = item.run.formatting
        if item.text.isspace() and not _UNDERLINED.search(formatting):
            continue
        if formatting != current:
            finish()
            current, first = formatting, place
        last = place
    finish()
    found: list[Item] = []
    end = -1
    for place, item in enumerate(items):
        if place in blanks:
            end = blanks[place]
            found.append(Item("field", inner=tuple(items[place : end + 1])))
        if place in starts:
            found.append(Item("format", run=item.run, pair=starts[place], opens=True))
        if place > end:
            found.append(item)
        if place in stops:
            found.append(Item("format", pair=stops[place]))
    return found


def inner_places(items: Sequence[Item]) -> tuple[int, int]:
    """The range of words, fields and formulas in a paragraph, without white space, images and marks at the ends and
    without pairs around all of it."""
    start, stop = 0, len(items)
    while start < stop and not _is_read(items[start]):
        start += 1
    while start < stop and not _is_read(items[stop - 1]):
        stop -= 1
    while True:
        outside = [place for place in (*range(start), *range(stop, len(items))) if items[place].pair is not None]
        ends = Counter(items[place].pair for place in outside)
        torn = [place for place in outside if ends[items[place].pair] == 1]
        if not torn:
            return start, stop
        start, stop = min(start, torn[0]), max(stop, torn[-1] + 1)


def _is_read(item: Item) -> bool:
    if item.text:
        return not item.text.isspace()
    return item.pair is None and (item.kind == "field" or (item.kind == "between" and item.name in ("", "fldSimple")))
