"""XLIFF 1.x and 2.x: translated units train, units without a translation get one, every other byte stays.

Sources: OASIS, "XLIFF Version 1.2" and "XLIFF Version 2.1". Inline elements are spans; those that the format pairs are
the two ends of a pair (<g>, <pc>, <mrk>; <bx> and <ex>, <bpt> and <ept>, <sc> and <ec>, <sm> and <em>). Content marked
as not translatable is one span. <ignorable>, <alt-trans> and <sub> stay as they are. In training they are their text,
or the text that the file gives for empty ones. A segment of XLIFF 1 (<mrk mtype="seg">) is a unit of its own. Trados
and memoQ (sdlxliff, mqxliff) have states and locks in name spaces of theirs.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scaleformer.formats.blocks import CHOICES, Block, BlockBuilder, Span
from scaleformer.formats.markup import Markup, Token, decode_xml, with_attributes
from scaleformer.formats.printf import REFUSED, refused
from scaleformer.formats.restoring import Change, least
from scaleformer.formats.rows import Row, one_segment
from scaleformer.formats.splicing import Edit, break_again, encode, escape_html, splice
from scaleformer.system.errors import DataError

_ENCLOSING = ("g", "pc", "mrk")
_OPENING = ("bx", "bpt", "sc", "sm")
_CLOSING = ("ex", "ept", "ec", "em")
_ITS = "http://www.w3.org/2005/11/its"  # whose mtConfidence says how sure a program is of a translation
_SDL, _MEMOQ = "{http://sdl.com/FileTypes/SdlXliff/1.0}", "{MQXliff}"
_UNSURE = (  # states of translations that nobody has confirmed
    *("new", "initial", "Draft", "RejectedTranslation", "RejectedSignOff"),
    *("NotStarted", "PreTranslated", "MachineTranslated", "AssembledFromFragments", "PartiallyEdited", "Rejected"),
)
_EQUIVALENTS = ("equiv-text", "equiv", "disp")  # attributes with the text of an empty inline element


class _Unit(NamedTuple):
    """A <trans-unit>, <segment> or <mrk mtype="seg">: the numbers of its tokens.

    number      its own
    holder      of the enclosing <unit>, or its own
    source      of the element to translate, followed by the target
    target      None if there is none
    document    the name of its <file>
    translated  whether it may be translated
    states      the attributes of the elements that have the state of the translation
    marks       those of Trados and memoQ
    """

    number: int
    holder: int
    source: int
    target: int | None
    document: str
    translated: bool
    states: dict[str, str]
    marks: list[int]


class XliffFile:
    """The units of all <file> elements that have no translation, or one that is "new" or "initial"; language: of the
    translation, if it is known, for files that do not say. written: those that have a translation, which is read.

    Raises DataError with file and line if it is not XLIFF, declares entities or is nested too deeply.
    """

    def __init__(self, content: bytes, name: str, language: str = "", written: bool = False) -> None:
        self._language = language
        text, self._encoding = decode_xml(content, name)
        self._markup = markup = Markup(text, name, "xliff")
        self._namespace = markup.tokens[markup.root].name.rpartition("}")[0]
        self.left: Counter[str] = Counter()
        self._stored: dict[int, dict[str | None, int]] = {}  # the <data> of each unit by their ids
        self._units = list(self._find_units(markup.root, "", True))
        self._open = list(self._translations() if written else self._find_open())
        self.blocks = [block for _, _, blocks in self._open for block in blocks]

    def rows(self, name: str, dropped: Counter[str]) -> Iterator[Row]:
        """The translated units, with a document for each <file>, whose name begins with `name`; counts the others by
        reason: not translatable, untranslated, or in a state before "translated"."""
        for unit in self._units:
            state = next((unit.states[key] for key in ("conf", f"{_MEMOQ}status", "state") if key in unit.states), "")
            texts = [self._plain(number, unit.holder) for number in (unit.source, unit.target) if unit.translated]
            if not unit.translated:
                dropped["not to be translated"] += 1
            elif not all(texts):
                dropped["untranslated"] += 1
            elif state in _UNSURE or state.startswith("needs-") or unit.states.get("state-qualifier") == "fuzzy-match":
                dropped["fuzzy"] += 1
            else:
                where = self._markup.where(unit.number)
                yield Row(where, f"{name}/{unit.document}".rstrip("/"), texts[:1], texts[1:])

    def _plain(self, number: int | None, holder: int) -> str:
        """The text inside an element, in one line."""
        if number is None:
            return ""
        pieces = []
        for place in range(number + 1, self._markup.ends[number]):
            token = self._markup.tokens[place]
            pieces.append(token.text)
            if self._local(token) in ("x", "ph", "cp") and self._markup.ends[place] == place + 1:
                pieces.append(self._equivalent(place, holder))
        return one_segment("".join(pieces))

    def _equivalent(self, number: int, holder: int) -> str:
        """The text of an empty inline element."""
        token = self._markup.tokens[number]
        if token.local == "cp":
            where = self._markup.where(number)
            raise DataError(f"{where}: <cp> stands for a control character, which is not text: remove it")
        codes = [token.attributes.get(key) for key in _EQUIVALENTS]
        if (reference := token.attributes.get("dataRef")) is not None:  # XLIFF 2: its code is beside the segments
            if holder not in self._stored:
                data = [one for all in self._children(holder, "originalData") for one in self._children(all, "data")]
                self._stored[holder] = {self._markup.tokens[one].attributes.get("id"): one for one in data}
            if (found := self._stored[holder].get(reference)) is not None:
                codes.insert(0, self._plain(found, holder))
        return next(filter(None, codes), "")

    def _local(self, token: Token) -> str:
        """The name of an element of XLIFF; "" for others."""
        namespace, _, name = token.name.rpartition("}")
        return name if token.kind == "start" and namespace == self._namespace else ""

    def _children(self, number: int, *names: str) -> list[int]:
        children = self._markup.children(number)
        return [child for child in children if self._local(self._markup.tokens[child]) in names]

    def _find_units(self, number: int, document: str, translated: bool) -> Iterator[_Unit]:
        """The units inside an element; translated: whether the enclosing elements allow translation."""
        token = self._markup.tokens[number]
        name, attributes = self._local(token), token.attributes
        translated = attributes.get("translate", "yes" if translated else "no") != "no"
        if name == "file":
            document = attributes.get("original") or attributes.get("id") or ""
        if name in ("trans-unit", "unit"):
            for part in self._children(number, "segment") if name == "unit" else (number,):
                sources = self._children(part, "source", "seg-source")
                if not sources:
                    raise DataError(f"{self._markup.where(part)}: a unit without <source>")
                target = next(iter(self._children(part, "target")), None)
                for source, own, marks in self._segments(part, sources[-1], target):
                    holders = (part, target, *marks, part if own is None or name == "unit" else own)
                    found = [self._markup.tokens[one].attributes for one in holders if one is not None]
                    locked = any(one.get("locked") == "true" or one.get(f"{_MEMOQ}locked") == "locked" for one in found)
                    marks += [part] if f"{_MEMOQ}status" in attributes else []
                    states = {key: value for one in found for key, value in one.items()}
                    yield _Unit(part, number, source, own, document, translated and not locked, states, marks)
        else:
            for child in self._children(number, "file", "body", "group", "unit", "trans-unit", "bin-unit"):
                yield from self._find_units(child, document, translated)

    def _segments(self, unit: int, source: int, target: int | None) -> Iterator[tuple[int, int | None, list[int]]]:
        """Source and target of each segment, or of the whole unit if the target has not the same ones; and what Trados
        says of them."""
        tokens = self._markup.tokens
        inside = (n for n in self._inside(unit) if tokens[n].name == f"{_SDL}seg" and tokens[n].kind == "start")
        said = {tokens[n].attributes.get("id"): n for n in inside}
        sides = [
            [n for n in self._inside(side) if tokens[n].attributes.get("mtype") == "seg"] for side in (source, target)
        ]
        ours, theirs = ([tokens[n].attributes.get("mid") for n in side] for side in sides)
        if ours and ours == theirs:
            yield from ((*pair, [said[mid]] if mid in said else []) for mid, *pair in zip(ours, *sides, strict=True))
        else:
            yield source, target, list(said.values())

    def _inside(self, number: int | None) -> range:
        return range(0) if number is None else range(number, self._markup.ends[number])

    def _find_open(self) -> Iterator[tuple[_Unit, list[str], list[Block]]]:
        """The units to translate; the file text of each character or tag of their sources, which the spans of the
        blocks have as their content, by index; and the blocks."""
        for unit in self._units:
            if not unit.translated:
                self.left["units not to be translated"] += 1
            elif unit.states.get("state") not in ("new", "needs-translation", "initial") and any(
                self._markup.tokens[n].text.strip() for n in self._inside(unit.target)
            ):
                self.left["translated units"] += 1
            else:
                pieces, blocks = self._read(unit.source)
                if blocks:
                    yield unit, pieces, blocks
                else:
                    self.left[CHOICES if blocks is None else "units without words"] += 1

    def _translations(self) -> Iterator[tuple[_Unit, list[str], list[Block]]]:
        for unit in self._units:
            if unit.target is not None:
                pieces, blocks = self._read(unit.target)
                yield unit, pieces, blocks or []

    def _read(self, number: int) -> tuple[list[str], list[Block] | None]:
        pieces: list[str] = []
        builders = [BlockBuilder(flags=frozenset())]
        self._read_source(number, builders, pieces, {})
        found = [builder.messages() for builder in builders]
        return pieces, None if None in found else [block for blocks in found for block in blocks or ()]

    def _read_source(
        self, number: int, builders: list[BlockBuilder], pieces: list[str], pairs: dict[tuple[str, str], int]
    ) -> None:
        """Add the characters and tags inside an element to the last builder, with their places in `pieces`; begin
        another where a segment begins or ends."""
        markup = self._markup

        def put(raw: str, pair: int | None = None, opens: bool = False) -> None:
            builders[-1].span(len(pieces), len(pieces), len(pieces) + 1, pair, opens)
            pieces.append(raw)

        for child in markup.children(number):
            token = markup.tokens[child]
            name, attributes = self._local(token), token.attributes
            if token.kind == "text":
                for character in token.text:
                    builders[-1].character(character, len(pieces), len(pieces) + 1)
                    # Line ends and references keep their form in the file.
                    written = markup.tag(child) if len(token.text) == 1 else character
                    pieces.append(written if len(written) > 1 else escape_html(written))
            elif token.kind != "start":
                continue
            elif (
                name in _ENCLOSING
                and not markup.tag(child).endswith("/>")
                and not (attributes.get("translate") == "no" or attributes.get("mtype") == "protected")
            ):
                put(markup.tag(child), child, True)
                more = [BlockBuilder(flags=frozenset())] if attributes.get("mtype") == "seg" else []
                builders += more
                self._read_source(child, builders, pieces, pairs)
                builders += [BlockBuilder(flags=frozenset()) for _ in more]
                put(markup.tag(markup.ends[child]), child)
            elif name in _OPENING:
                pairs[name, attributes.get("rid") or attributes.get("id", "")] = child
                put(markup.raw(child), child, True)
            elif name in _CLOSING:
                other = _OPENING[_CLOSING.index(name)]
                key = attributes.get("startRef") or attributes.get("rid") or attributes.get("id", "")
                put(markup.raw(child), pairs.pop((other, key), None))
            else:
                put(markup.raw(child))

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the translations of the changed units, whose state is then "translated", or for unsure ones
        "needs-review-translation" (XLIFF 1) and "initial" (2); where it is known with their confidence."""
        edits: list[Edit] = []
        rest = iter(changes)
        for unit, pieces, blocks in self._open:
            found = list(zip(blocks, rest, strict=False))
            if refused(some for _, some in found):
                self.left[REFUSED] += 1
            elif any(some for _, some in found):
                edits += self._edits(
                    unit, _translation(pieces, found), *least(one for _, some in found for one in some)
                )
        edits += self._languages() if edits else []
        return encode(splice(self._markup.content, edits), self._encoding)

    def _languages(self) -> Iterator[Edit]:
        """Edits that say which language the translation has, where the file does not; in XLIFF 2 it has to."""
        for number in (self._markup.root, *self._children(self._markup.root, "file")):
            token = self._markup.tokens[number]
            for source, target in (("srcLang", "trgLang"), ("source-language", "target-language")):
                if source in token.attributes and target not in token.attributes:
                    if self._language:
                        added = with_attributes(self._markup.tag(number), **{target: self._language})
                        yield token.start, token.stop, added
                    elif target == "trgLang":
                        self.left["files without the language of their translation: add trgLang to <xliff>"] += 1

    def _edits(self, unit: _Unit, text: str, confidence: float | None, unsure: bool) -> Iterator[Edit]:
        markup = self._markup
        state = "needs-review-translation" if unsure else "translated"
        attributes: dict[str, str | None] = {"state": state, "state_qualifier": None}
        if unit.target is not None and self._local(markup.tokens[unit.target]) == "mrk":
            attributes = {}
        if confidence is not None:
            attributes |= {"xmlns:its": _ITS, "its:mtConfidence": f"{confidence / 100:.3f}"}
            attributes["its:annotatorsRef"] = "mt-confidence|scaleformer"
        holder = markup.tokens[unit.number]
        if self._local(holder) == "segment":
            told = None if confidence is None else f"scaleformer:confidence-{confidence:.0f}"
            state = "initial" if unsure else "translated"
            yield holder.start, holder.stop, with_attributes(markup.tag(unit.number), state=state, subState=told)
            attributes = {}
        for number in unit.marks:
            tag = markup.tag(number)
            if markup.tokens[number].name == f"{_SDL}seg":
                tag = with_attributes(tag, conf="Draft", origin="mt", origin_system="scaleformer")
            elif (found := re.search(r"([^\s=]+:status)\s*=", tag)) is not None:
                tag = with_attributes(tag, **{found[1]: "MachineTranslated"})
            yield markup.tokens[number].start, markup.tokens[number].stop, tag
        if unit.target is None:
            begin, end = markup.element(unit.source)
            before = markup.content[markup.content.rfind(">", 0, begin) + 1 : begin]
            prefix = markup.tag(unit.source)[1:].partition("source")[0].removesuffix("seg-")
            tag = with_attributes(f"<{prefix}target>", **attributes)
            yield end, end, f"{before if not before.strip() else ''}{tag}{text}</{prefix}target>"
        else:
            tag = with_attributes(markup.tag(unit.target), **attributes)
            tag = f"{tag[:-2].rstrip()}>" if tag.endswith("/>") else tag
            name = tag[1:-1].split(maxsplit=1)[0]
            yield *markup.element(unit.target), f"{tag}{text}</{name}>"


def _translation(source: list[str], changes: Sequence[tuple[Block, Sequence[Change]]]) -> str:
    def written(start: int, stop: int) -> str:
        return html.unescape("".join(source[start:stop]))

    pieces, place = [], 0
    for block, change in ((block, change) for block, some in changes for change in some):
        start, stop = block.origin(change.start, change.stop)
        pieces += source[place:start]
        for part in break_again(block, change, written):
            if isinstance(part, Span) and isinstance(part.content, int):
                pieces.append(source[part.content])
            else:
                pieces.append(escape_html(str(part.content) if isinstance(part, Span) else part))
        place = stop
    return "".join([*pieces, *source[place:]])
