"""The units of XLIFF 1.x and 2.x, and what their files say of their translations.

Sources: OASIS, "XLIFF Version 1.2" and "XLIFF Version 2.1". A segment of XLIFF 1 (<mrk mtype="seg">) is a unit of its
own. Trados and memoQ (sdlxliff, mqxliff) have states and locks in name spaces of theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from scaleformer.formats.markup import Markup, Token
from scaleformer.formats.rows import Row, one_segment
from scaleformer.system.errors import DataError

SDL, MEMOQ = "{http://sdl.com/FileTypes/SdlXliff/1.0}", "{MQXliff}"
_UNSURE = (  # states of translations that nobody has confirmed
    *("new", "initial", "Draft", "RejectedTranslation", "RejectedSignOff"),
    *("NotStarted", "PreTranslated", "MachineTranslated", "AssembledFromFragments", "PartiallyEdited", "Rejected"),
)
_EQUIVALENTS = ("equiv-text", "equiv", "disp")  # attributes with the text of an empty inline element


class Unit(NamedTuple):
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


class XliffUnits:
    """The units of all <file> elements. Raises DataError with file and line for a unit without a source."""

    def __init__(self, markup: Markup) -> None:
        self.markup = markup
        self._namespace = markup.tokens[markup.root].name.rpartition("}")[0]
        self._stored: dict[int, dict[str | None, int]] = {}  # the <data> of each unit by their ids
        self.units = list(self._find_units(markup.root, "", True))

    def rows(self, name: str, dropped: Counter[str]) -> Iterator[Row]:
        """The translated units, with a document for each <file>, whose name begins with `name`; counts the others by
        reason: not translatable, untranslated, or in a state before "translated"."""
        for unit in self.units:
            state = next((unit.states[key] for key in ("conf", f"{MEMOQ}status", "state") if key in unit.states), "")
            texts = [self._plain(number, unit.holder) for number in (unit.source, unit.target) if unit.translated]
            if not unit.translated:
                dropped["not to be translated"] += 1
            elif not all(texts):
                dropped["untranslated"] += 1
            elif state in _UNSURE or state.startswith("needs-") or unit.states.get("state-qualifier") == "fuzzy-match":
                dropped["fuzzy"] += 1
            else:
                where = self.markup.where(unit.number)
                yield Row(where, f"{name}/{unit.document}".rstrip("/"), texts[:1], texts[1:])

    def _plain(self, number: int | None, holder: int) -> str:
        """The text inside an element, in one line."""
        if number is None:
            return ""
        pieces = []
        for place in range(number + 1, self.markup.ends[number]):
            token = self.markup.tokens[place]
            pieces.append(token.text)
            if self.local(token) in ("x", "ph", "cp") and self.markup.ends[place] == place + 1:
                pieces.append(self._equivalent(place, holder))
        return one_segment("".join(pieces))

    def _equivalent(self, number: int, holder: int) -> str:
        """The text of an empty inline element."""
        token = self.markup.tokens[number]
        if token.local == "cp":
            where = self.markup.where(number)
            raise DataError(f"{where}: <cp> stands for a control character, which is not text: remove it")
        codes = [token.attributes.get(key) for key in _EQUIVALENTS]
        if (reference := token.attributes.get("dataRef")) is not None:  # XLIFF 2: its code is beside the segments
            if holder not in self._stored:
                data = [one for all in self.children(holder, "originalData") for one in self.children(all, "data")]
                self._stored[holder] = {self.markup.tokens[one].attributes.get("id"): one for one in data}
            if (found := self._stored[holder].get(reference)) is not None:
                codes.insert(0, self._plain(found, holder))
        return next(filter(None, codes), "")

    def local(self, token: Token) -> str:
        """The name of an element of XLIFF; "" for others."""
        namespace, _, name = token.name.rpartition("}")
        return name if token.kind == "start" and namespace == self._namespace else ""

    def children(self, number: int, *names: str) -> list[int]:
        children = self.markup.children(number)
        return [child for child in children if self.local(self.markup.tokens[child]) in names]

    def _find_units(self, number: int, document: str, translated: bool) -> Iterator[Unit]:
        """The units inside an element; translated: whether the enclosing elements allow translation."""
        token = self.markup.tokens[number]
        name, attributes = self.local(token), token.attributes
        translated = attributes.get("translate", "yes" if translated else "no") != "no"
        if name == "file":
            document = attributes.get("original") or attributes.get("id") or ""
        if name in ("trans-unit", "unit"):
            for part in self.children(number, "segment") if name == "unit" else (number,):
                sources = self.children(part, "source", "seg-source")
                if not sources:
                    raise DataError(f"{self.markup.where(part)}: a unit without <source>")
                target = next(iter(self.children(part, "target")), None)
                for source, own, marks in self._segments(part, sources[-1], target):
                    holders = (part, target, *marks, part if own is None or name == "unit" else own)
                    found = [self.markup.tokens[one].attributes for one in holders if one is not None]
                    locked = any(one.get("locked") == "true" or one.get(f"{MEMOQ}locked") == "locked" for one in found)
                    marks += [part] if f"{MEMOQ}status" in attributes else []
                    states = {key: value for one in found for key, value in one.items()}
                    yield Unit(part, number, source, own, document, translated and not locked, states, marks)
        else:
            for child in self.children(number, "file", "body", "group", "unit", "trans-unit", "bin-unit"):
                yield from self._find_units(child, document, translated)

    def _segments(self, unit: int, source: int, target: int | None) -> Iterator[tuple[int, int | None, list[int]]]:
        """Source and target of each segment, or of the whole unit if the target has not the same ones; and what Trados
        says of them."""
        tokens = self.markup.tokens
        inside = (n for n in self.inside(unit) if tokens[n].name == f"{SDL}seg" and tokens[n].kind == "start")
        said = {tokens[n].attributes.get("id"): n for n in inside}
        sides = [
            [n for n in self.inside(side) if tokens[n].attributes.get("mtype") == "seg"] for side in (source, target)
        ]
        ours, theirs = ([tokens[n].attributes.get("mid") for n in side] for side in sides)
        if ours and ours == theirs:
            yield from ((*pair, [said[mid]] if mid in said else []) for mid, *pair in zip(ours, *sides, strict=True))
        else:
            yield source, target, list(said.values())

    def inside(self, number: int | None) -> range:
        return range(0) if number is None else range(number, self.markup.ends[number])
