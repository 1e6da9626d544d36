"""A paragraph of an office document as prose and spans, and the rewriting of its runs.

Source: ECMA-376, part 1, sections 17, 18 and 21. Runs with the formatting of most of the paragraph are its prose. Other
formatting, links, content controls, insertions, bookmarks and comment ranges are pairs of spans; images, tabs, notes,
fields, deletions, code and unknown elements are single spans. The visible text of a HYPERLINK field is prose. A line
break ends a block. Elements such as notes or images at the ends of a block are not part of it and keep their place.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby, pairwise

from scaleformer.formats.blocks import CODE, Block, BlockBuilder, Span
from scaleformer.formats.markup import XML
from scaleformer.formats.restoring import Change
from scaleformer.formats.runs import Run, RunMarkup
from scaleformer.formats.splicing import plain

_AROUND_RUNS = ("hyperlink", "ins", "moveTo", "smartTag", "customXml", "dir", "bdo")
LEFT = {"del": "deleted texts", "moveFrom": "deleted texts", "fldSimple": "fields"}
_UNSEEN = ("proofErr", "lastRenderedPageBreak", "softHyphen")  # dropped if the words change
_CHOSEN = ("dropDownList", "comboBox", "date", "checkbox")  # content controls with a list of choices
_FIELD = ("begin", "separate", "end")
_RANGES = ("bookmark", "commentRange", "perm", "moveToRange", "customXmlInsRange")  # ...Start and ...End
_FIELD_NAME = 9  # the most items of a field to search for its name
_BREAKS = ("br", "cr")
_UNDERLINED = re.compile("<u |underline-style")
_CHARACTERS = {"noBreakHyphen": "\u2011", "s": " "}


@dataclass(frozen=True, eq=False)
class Item:
    """An item of a paragraph.

    name   of an element or of a part of a field; "text" for a character of a run; "(" and ")" around runs; "format" for
           the start or end of different formatting; "field" for several items in one
    text   the character, or the text that is not translated
    place  in the content of the file; not of characters of a text
    run    in which it stands; None between runs
    """

    name: str
    text: str = ""
    place: tuple[int, int] = (0, 0)
    run: Run | None = None
    pair: int | None = None
    opens: bool = False
    inner: tuple[Item, ...] = ()

    def leaves(self) -> Iterator[Item]:
        """The single items in it, however deep; itself if it is one."""
        stack = [self]
        while stack:
            item = stack.pop()
            stack.extend(reversed(item.inner))
            if not item.inner:
                yield item

    @property
    def is_read(self) -> bool:
        """Whether a reader sees it as a part of the sentence: a word, a field, a formula."""
        if self.name == "text":
            return not self.text.isspace()
        alone = self.run is None and self.name == ""
        return self.pair is None and (alone or self.name in ("code", "field", "fldSimple"))

    @property
    def shown(self) -> str:
        """What a text to train on has in its place: text that is not translated looks like code."""
        text = "".join(leaf.text for leaf in self.leaves())
        if text.strip() and self.pair is None:
            return f"`{text.strip()}`"
        return " " if text or self.name == "tab" else ""


class Paragraph:
    """A <p>; start, stop: the position of its content in the file, which `write` replaces; left: counts what is not
    translated; kind: of blocks without a style that has one. Its blocks have words; line breaks part them."""

    def __init__(self, markup: RunMarkup, number: int, left: Counter[str], kind: str) -> None:
        self._markup = markup
        self._left = left
        self._pairs = count()
        properties = markup.find(number, "pPr")
        self.start = markup.tokens[number].stop if properties is None else markup.element(properties)[1]
        self.stop = markup.tokens[markup.ends[number]].start
        style = markup.style(number)
        self._bold = kind in ("cell", "title") or style.formatted
        self._bare = markup.bare(number)
        items = self._joined_fields(self._paired_ranges(list(self._between(number))))
        runs = [item.run for item in items if item.run and item.name == "text" and not item.text.isspace()]
        most = Counter(run.formatting for run in runs).most_common(1)
        self._prose = next((run for run in runs if run.formatting == most[0][0]), None)
        self._items = self._marked_formats(items, self._prose.formatting if self._prose else "")
        own = style.kind or kind
        if own == "code":
            self.blocks = [CODE] if items else []
            return
        breaks = (place for place, item in enumerate(self._items) if item.name in _BREAKS)
        parts = pairwise([-1, *breaks, len(self._items)])
        found = [self._block("cell" if kind == "cell" else own, before + 1, stop) for before, stop in parts]
        self.blocks = [block for block in found if block is not None]

    def _block(self, kind: str, first: int, last: int) -> Block | None:
        """The block of these items; None if they have no words."""
        builder = BlockBuilder(kind)
        for place in range(*_inner_places(self._items, first, last)):
            item = self._items[place]
            if item.name == "text":
                builder.character(item.text, place, place + 1)
            elif item.name not in _UNSEEN:
                builder.span(place, place, place + 1, item.pair, item.opens, shown=item.shown)
        return builder.build()

    def _between(self, number: int, run: Run | None = None) -> Iterator[Item]:
        """The items of a paragraph, of a run, or of an element around runs or inside one."""
        markup = self._markup
        for child in markup.children(number):
            name, place, kind = markup.names[child], markup.element(child), markup.tokens[child].kind
            if markup.is_text(child):
                yield from self._texts(child, run or self._bare)
                continue
            if kind != "start" or name.endswith("Pr"):
                continue
            around = child if name in _AROUND_RUNS else self._content_of(child) if name == "sdt" else None
            if name == "r":
                yield from self._between(child, markup.run(child, run or self._bare, bold=self._bold))
            elif around is not None and not markup.tag(around).endswith("/>"):
                inner = (one for one in markup.children(around) if markup.names[one].endswith("Pr"))
                begin = max([markup.tokens[around].stop, *(markup.element(one)[1] for one in inner)])
                pair = next(self._pairs)
                yield Item("(", place=(place[0], begin), pair=pair, opens=True)
                yield from self._between(around, run)
                yield Item(")", place=(markup.tokens[markup.ends[around]].start, place[1]), pair=pair)
            elif run and name == "fldChar":
                kind = markup.value(child, "fldCharType")
                yield Item(kind if kind in _FIELD else "", place=place, run=run)
            elif name in _CHARACTERS:
                yield self._character(_CHARACTERS[name], place, run or self._bare)
            else:
                if name in LEFT:
                    self._left[LEFT[name]] += 1
                identity = markup.value(child, "id") or markup.value(child, "name") or markup.value(child, "change-id")
                known = f"{name} {identity}" if name.endswith(("Start", "End")) else name
                yield Item(known, markup.text(child) if name in ("fldSimple", "sdt") else "", place, run)

    def _texts(self, number: int, run: Run) -> Iterator[Item]:
        """The characters of a text in a run, or the text if it is code."""
        markup = self._markup
        text = markup.text(number)
        if run.is_code:
            yield self._character(text, markup.element(number), run)
            return
        if markup.preserve and markup.tokens[number].attributes.get(f"{{{XML}}}space") != "preserve":
            text = text.strip(" \t\r\n")
        for character in re.findall("|".join((*markup.controls, ".")), text, re.DOTALL):
            yield Item(markup.controls.get(character, "text"), character, run=run)

    @staticmethod
    def _character(text: str, place: tuple[int, int], run: Run) -> Item:
        """A character that is an element, or code."""
        return Item("code", inner=(Item("", text, place, run),)) if run.is_code else Item("text", text, place, run)

    def _content_of(self, control: int) -> int | None:
        """The content of a content control; None if it offers choices."""
        markup = self._markup
        properties = markup.find(control, "sdtPr")
        if properties is not None and any(markup.tokens[n].local in _CHOSEN for n in markup.children(properties)):
            return None
        return markup.find(control, "sdtContent")

    def _paired_ranges(self, items: list[Item]) -> list[Item]:
        """Pair the starts and ends of bookmarks and other ranges within this paragraph."""
        begun: dict[tuple[str, str], int] = {}
        found = list(items)
        for place, item in enumerate(items):
            name, _, identity = item.name.partition(" ")
            kind = name.removesuffix("Start").removesuffix("End")
            if kind in _RANGES and name.endswith("Start"):
                begun[kind, identity] = place
            elif kind in _RANGES and (start := begun.pop((kind, identity), None)) is not None:
                pair = next(self._pairs)
                found[start], found[place] = replace(items[start], pair=pair, opens=True), replace(item, pair=pair)
        return found

    def _joined_fields(self, items: list[Item]) -> list[Item]:
        """Merge each field that begins and ends in the same element into one item, and neighbouring code; links keep
        two ends."""
        found: list[Item] = []
        around: list[int | None] = [None]
        begun: list[tuple[int, int | None, int | None]] = []  # place, element, and the place of the separator
        merged: list[Item] = []
        for name, some in groupby(items, lambda item: item.name):
            stretch = list(some)
            leaves = tuple(leaf for item in stretch for leaf in item.leaves()) if name == "code" else ()
            merged += [Item(name, inner=leaves)] if leaves else stretch
        for item in merged:
            found.append(item)
            if item.name == "(":
                around.append(item.pair)
            elif item.name == ")":
                around.pop()
            elif item.name == "begin":
                begun.append((len(found) - 1, around[-1], None))
            elif item.name == "separate" and begun and begun[-1][1:] == (around[-1], None):
                begun[-1] = (*begun[-1][:2], len(found) - 1)
            elif item.name == "end" and begun:
                begin, inside, separator = begun.pop()
                if inside != around[-1]:
                    continue
                if separator is not None and self._is_link(found[begin + 1 : min(separator, begin + _FIELD_NAME)]):
                    pair = next(self._pairs)
                    found[-1] = Item(")", inner=(item,), pair=pair)
                    opening = tuple(found[begin : separator + 1])
                    found[begin : separator + 1] = [Item("(", inner=opening, pair=pair, opens=True)]
                else:
                    found[begin:] = [Item("field", inner=tuple(found[begin:]))]
        self._left.update("fields" for item in found if item.name == "field")
        return found

    def _is_link(self, items: Sequence[Item]) -> bool:
        code = "".join(self._markup.content[slice(*item.place)] for item in items if item.name == "instrText")
        return re.match(r"<[^>]*>\s*HYPERLINK\b", code) is not None

    def _marked_formats(self, items: list[Item], prose: str) -> list[Item]:
        """Mark where formatting different from the prose begins and ends. No pair encloses only white space, a line
        break, or the end of an element around runs. Underlined white space, a line to write on, is one item."""
        stretches: list[tuple[Run, int, int]] = []  # characters of the same formatting
        current: str | None = None
        for place, item in enumerate(items):
            if item.name in ("(", ")", *_BREAKS):
                current = None
            elif item.name == "text" and item.run is not None:
                if item.text.isspace() and not _UNDERLINED.search(item.run.formatting):
                    continue
                run, first = stretches.pop()[:2] if item.run.formatting == current else (item.run, place)
                stretches.append((run, first, place + 1))
                current = item.run.formatting
        found: list[Item] = []
        place = 0
        for run, first, stop in stretches:
            part = items[first:stop]
            found += items[place:first]
            place = stop
            if run.formatting == prose:
                found += part
            elif all(item.text.isspace() for item in part):
                found.append(Item("field", inner=tuple(part)))
            else:
                pair = next(self._pairs)
                found += [Item("format", run=run, pair=pair, opens=True), *part, Item("format", pair=pair)]
        return found + items[place:]

    def write(self, changes: Sequence[Sequence[Change]], raw: Callable[[int, int], str]) -> str:
        """The content of the paragraph with the changes of each block; raw: the file content between two places."""
        assert self._prose is not None
        formats: list[tuple[int | None, Run]] = [(None, self._prose)]
        pieces: list[tuple[Run | None, bool, str]] = []  # the run, whether it is text, the text or XML

        def put(item: Item) -> None:
            for leaf in item.leaves():
                if leaf.name == "format":
                    formats[:] = [(pair, run) for pair, run in formats if pair != leaf.pair]
                    formats.extend([(leaf.pair, leaf.run)] if leaf.opens and leaf.run else [])
                else:
                    is_text = not any(leaf.place)
                    pieces.append((leaf.run, is_text, leaf.text if is_text else raw(*leaf.place)))

        place = 0
        for block, change in ((block, one) for block, some in zip(self.blocks, changes, strict=True) for one in some):
            start, stop = block.origin(change.start, change.stop)
            for item in self._items[place:start]:
                put(item)
            for part in change.parts:
                if isinstance(part, Span) and isinstance(part.content, int):
                    put(self._items[part.content])
                else:
                    text = str(part.content) if isinstance(part, Span) else plain(part)
                    pieces.extend([(formats[-1][1], True, text)] if text else [])
            place = stop
        for item in self._items[place:]:
            put(item)
        runs = ((run, [piece[1:] for piece in some]) for run, some in groupby(pieces, lambda piece: piece[0]))
        return "".join(run.written(some) if run else "".join(xml for _, xml in some) for run, some in runs)


def _inner_places(items: Sequence[Item], first: int, last: int) -> tuple[int, int]:
    """The range of words, fields and formulas in a part of a paragraph, without white space, images and marks at the
    ends and without pairs around all of it."""
    read = [place for place in range(first, last) if items[place].is_read]
    start, stop = (read[0], read[-1] + 1) if read else (last, last)
    ends: dict[int | None, list[int]] = defaultdict(list)
    for place in range(first, last):
        if items[place].pair is not None:
            ends[items[place].pair].append(place)
    inside = list(range(start, stop))
    while inside:
        for end in ends.get(items[inside.pop()].pair, ()):
            inside += [*range(end, start), *range(stop, end + 1)]
            start, stop = min(start, end), max(stop, end + 1)
    return start, stop
