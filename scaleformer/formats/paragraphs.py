"""A paragraph of WordprocessingML as prose and spans, and the rewriting of its runs.

Source: ECMA-376, part 1, section 17. Runs with the formatting of most of the paragraph are its prose. Other formatting,
links, content controls, insertions, bookmarks and comment ranges are pairs of spans; images, tabs, breaks, notes,
fields, deletions, code and unknown elements are single spans. The visible text of a HYPERLINK field is prose. Elements
such as notes or images at the ends of a paragraph are not part of the block and keep their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from scaleformer.formats.breaks import plain
from scaleformer.formats.markup import XML, Markup, Token
from scaleformer.formats.restoring import Change
from scaleformer.formats.runs import Item, Run, RunWriter, inner_places, join_fields, mark_formats, pair_ranges
from scaleformer.formats.segments import CODE, BlockBuilder, Span

WORD = (
    "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}",
    "{http://purl.oclc.org/ooxml/wordprocessingml/main}",  # in strict documents
)
_AROUND_RUNS = ("hyperlink", "ins", "moveTo", "smartTag", "customXml", "dir", "bdo")
_LEFT = {"del": "deleted texts", "moveFrom": "deleted texts", "fldSimple": "fields"}
_UNSEEN = ("proofErr", "lastRenderedPageBreak", "softHyphen")  # dropped if the words change
_CHOSEN = ("dropDownList", "comboBox", "date", "checkbox")  # content controls with a list of choices
_FIELD = ("begin", "separate", "end")


def local(token: Token) -> str:
    """The name of an element of WordprocessingML without its name space; "" for others."""
    for namespace in WORD:
        if token.name.startswith(namespace):
            return token.name.removeprefix(namespace)
    return ""


def attribute(token: Token, name: str) -> str:
    """An attribute of an element of WordprocessingML; "" if it has none of this name."""
    return next((value for key, value in token.attributes.items() if key.endswith(f"}}{name}")), "")


def _is_unseen(token: Token) -> bool:
    """Whether a property of a run is not formatting: its language, or the script for its fonts."""
    name = local(token)
    return name in ("lang", "noProof") or (name == "rFonts" and all(key.endswith("}hint") for key in token.attributes))


class Paragraph:
    """A <w:p>; start, stop: the position of its content in the file, which `write` replaces; left: counts what is not
    translated; kinds: of blocks, by style; kind: without such a style. It has no block if it has no words."""

    def __init__(self, markup: Markup, number: int, left: Counter[str], kinds: Mapping[str, str], kind: str) -> None:
        self._markup = markup
        self._kinds = kinds
        self._left = left
        self._pairs = count()
        self.start, self.stop = markup.tokens[number].stop, markup.tokens[markup.ends[number]].start
        for child in markup.children(number):
            if local(markup.tokens[child]) == "pPr":
                self.start = markup.element(child)[1]
        items = pair_ranges(list(self._between(number)), self._pairs)
        items = join_fields(items, self._pairs, left, markup.content)
        runs = [item.run for item in items if item.run and item.text and not item.text.isspace()]
        most = Counter(run.formatting for run in runs).most_common(1)
        self._prose = next((run for run in runs if run.formatting == most[0][0]), None)
        self._items = mark_formats(items, self._prose.formatting if self._prose else "", self._pairs)
        style = self._kind(number, "pPr", "pStyle")
        builder = BlockBuilder(kind if kind == "cell" else style or kind)
        for place in range(*inner_places(self._items)):
            item = self._items[place]
            if item.text:
                builder.character(item.text, place, place + 1)
            elif item.name not in _UNSEEN:
                builder.span(place, place, place + 1, item.pair, item.opens, shown=item.shown)
        self.block = builder.build() if style != "code" else CODE if items else None

    def _kind(self, number: int, properties: str, style: str) -> str:
        """What the style means that the properties of a paragraph or a run name; "" for nothing known."""
        markup = self._markup
        for child in markup.children(number):
            if local(markup.tokens[child]) == properties and markup.tokens[child].kind == "start":
                for inner in markup.children(child):
                    if local(markup.tokens[inner]) == style:
                        return self._kinds.get(attribute(markup.tokens[inner], "val"), "")
        return ""

    def _text(self, number: int) -> str:
        """The text in an element."""
        markup = self._markup
        texts = (n for n in range(number, markup.ends[number]) if local(markup.tokens[n]) == "t")
        return "".join(markup.tokens[inner].text for n in texts if n in markup.ends for inner in markup.children(n))

    def _between(self, number: int) -> Iterator[Item]:
        """The items of a paragraph, or of an element around some of its runs."""
        markup = self._markup
        for child in markup.children(number):
            token = markup.tokens[child]
            name = local(token)
            if token.kind != "start" or name.endswith("Pr"):
                continue
            place = markup.element(child)
            around = child if name in _AROUND_RUNS else self._content_of(child) if name == "sdt" else None
            if name == "r":
                yield from self._inside(child)
            elif around is not None and not markup.tag(around).endswith("/>"):
                begin = markup.tokens[around].stop
                for inner in markup.children(around):
                    if local(markup.tokens[inner]).endswith("Pr"):
                        begin = markup.element(inner)[1]
                pair = next(self._pairs)
                yield Item("between", "(", place=(place[0], begin), pair=pair, opens=True)
                yield from self._between(around)
                yield Item("between", ")", place=(markup.tokens[markup.ends[around]].start, place[1]), pair=pair)
            else:
                if name in _LEFT:
                    self._left[_LEFT[name]] += 1
                known = f"{name} {attribute(token, 'id')}" if name.endswith(("Start", "End")) else name
                text = self._text(child) if name in ("fldSimple", "sdt") else ""
                yield Item("between", known, place=place, inner=(Item("text", text=text),))

    def _content_of(self, control: int) -> int | None:
        """The content of a content control; None if it offers choices."""
        markup, content = self._markup, None
        for child in markup.children(control):
            if local(markup.tokens[child]) == "sdtPr":
                names = (markup.tokens[inner].name.rpartition("}")[2] for inner in markup.children(child))
                if any(name in _CHOSEN for name in names):
                    return None
            elif local(markup.tokens[child]) == "sdtContent":
                content = child
        return content

    def _inside(self, number: int) -> Iterator[Item]:
        """The items of a run."""
        markup = self._markup
        elements = [child for child in markup.children(number) if markup.tokens[child].kind == "start"]
        properties = next((child for child in elements if local(markup.tokens[child]) == "rPr"), None)
        run = Run(markup.tag(number), "", "")
        if properties is not None:
            formatting = "".join(
                markup.raw(child)
                for child in markup.children(properties)
                if markup.tokens[child].kind == "start" and not _is_unseen(markup.tokens[child])
            )
            run = Run(run.tag, markup.raw(properties), formatting)
        is_code = self._kind(number, "rPr", "rStyle") == "code"
        for child in elements:
            token = markup.tokens[child]
            name = local(token)
            if name == "t" and is_code:
                code = Item("inside", text=self._text(child), place=markup.element(child), run=run)
                yield Item("field", "code", inner=(code,))
            elif name == "t":
                text = self._text(child)
                text = text if token.attributes.get(f"{{{XML}}}space") == "preserve" else text.strip(" \t\r\n")
                yield from (Item("text", text=character, run=run) for character in text)
            elif name == "fldChar":
                kind = attribute(token, "fldCharType")
                yield Item("inside", kind if kind in _FIELD else "", place=markup.element(child), run=run)
            elif child != properties:
                hyphen = "\u2011" if name == "noBreakHyphen" else ""
                yield Item("inside", name, text=hyphen, place=markup.element(child), run=run)

    def write(self, changes: Sequence[Change], raw: Callable[[int, int], str]) -> str:
        """The content of the paragraph with changes of its block; raw: the file content between two places."""
        assert self.block is not None
        assert self._prose is not None
        writer = RunWriter(self._prose, raw)
        place = 0
        for change in changes:
            start, stop = self.block.origin(change.start, change.stop)
            for item in self._items[place:start]:
                writer.put(item)
            for part in change.parts:
                if isinstance(part, Span) and isinstance(part.content, int):
                    writer.put(self._items[part.content])
                else:
                    writer.text(str(part.content) if isinstance(part, Span) else plain(part))
            place = stop
        for item in self._items[place:]:
            writer.put(item)
        return writer.finished()
