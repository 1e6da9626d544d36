"""XLIFF 1.x and 2.x: translated units train, units without a translation get one, every other byte stays.

Sources: OASIS, "XLIFF Version 1.2" and "XLIFF Version 2.1". Inline elements are spans; those that the format pairs are
the two ends of a pair (<g>, <pc>, <mrk>; <bx> and <ex>, <bpt> and <ept>, <sc> and <ec>, <sm> and <em>). Content marked
as not translatable is one span. <ignorable>, <alt-trans> and <sub> stay as they are. In training they are their text,
or the text that the file gives for empty ones.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from scaleformer.formats.blocks import CHOICES, Block, BlockBuilder, Span
from scaleformer.formats.markup import Markup, with_attributes
from scaleformer.formats.printf import REFUSED, refused
from scaleformer.formats.restoring import Change, least
from scaleformer.formats.splicing import Edit, break_again, encode, escape_html, splice
from scaleformer.formats.xliff_units import SDL, Unit, XliffUnits

_ENCLOSING = ("g", "pc", "mrk")
_OPENING = ("bx", "bpt", "sc", "sm")
_CLOSING = ("ex", "ept", "ec", "em")
_ITS = "http://www.w3.org/2005/11/its"  # whose mtConfidence says how sure a program is of a translation


class XliffFile(XliffUnits):
    """The units of all <file> elements that have no translation, or one that is "new" or "initial"; language: of the
    translation, if it is known, for files that do not say. written: those that have a translation, which is read.
    Raises DataError with file and line if it is not XLIFF, declares entities or is nested too deeply."""

    def __init__(self, content: bytes, name: str, language: str = "", written: bool = False) -> None:
        self._language = language
        super().__init__(Markup(content, name, "xliff"))
        self.left: Counter[str] = Counter()
        self._open = list(self._translations() if written else self._find_open())
        self.blocks = [block for _, _, blocks in self._open for block in blocks]

    def _find_open(self) -> Iterator[tuple[Unit, list[str], list[Block]]]:
        """The units to translate; the file text of each character or tag of their sources, which the spans of the
        blocks have as their content, by index; and the blocks."""
        for unit in self.units:
            if not unit.translated:
                self.left["units not to be translated"] += 1
            elif unit.states.get("state") not in ("new", "needs-translation", "initial") and any(
                self.markup.tokens[n].text.strip() for n in self.inside(unit.target)
            ):
                self.left["translated units"] += 1
            else:
                pieces, blocks = self._read(unit.source)
                if blocks:
                    yield unit, pieces, blocks
                else:
                    self.left[CHOICES if blocks is None else "units without words"] += 1

    def _translations(self) -> Iterator[tuple[Unit, list[str], list[Block]]]:
        for unit in self.units:
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
        markup = self.markup

        def put(raw: str, pair: int | None = None, opens: bool = False) -> None:
            builders[-1].span(len(pieces), len(pieces), len(pieces) + 1, pair, opens)
            pieces.append(raw)

        for child in markup.children(number):
            token = markup.tokens[child]
            name, attributes = self.local(token), token.attributes
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
        return encode(splice(self.markup.content, edits), self.markup.encoding)

    def _languages(self) -> Iterator[Edit]:
        """Edits that say which language the translation has, where the file does not; in XLIFF 2 it has to."""
        for number in (self.markup.root, *self.children(self.markup.root, "file")):
            token = self.markup.tokens[number]
            for source, target in (("srcLang", "trgLang"), ("source-language", "target-language")):
                if source in token.attributes and target not in token.attributes:
                    if self._language:
                        added = with_attributes(self.markup.tag(number), **{target: self._language})
                        yield token.start, token.stop, added
                    elif target == "trgLang":
                        self.left["files without the language of their translation: add trgLang to <xliff>"] += 1

    def _edits(self, unit: Unit, text: str, confidence: float | None, unsure: bool) -> Iterator[Edit]:
        markup = self.markup
        state = "needs-review-translation" if unsure else "translated"
        attributes: dict[str, str | None] = {"state": state, "state_qualifier": None}
        if unit.target is not None and self.local(markup.tokens[unit.target]) == "mrk":
            attributes = {}
        if confidence is not None:
            attributes |= {"xmlns:its": _ITS, "its:mtConfidence": f"{confidence / 100:.3f}"}
            attributes["its:annotatorsRef"] = "mt-confidence|scaleformer"
        holder = markup.tokens[unit.number]
        if self.local(holder) == "segment":
            told = None if confidence is None else f"scaleformer:confidence-{confidence:.0f}"
            state = "initial" if unsure else "translated"
            yield holder.start, holder.stop, with_attributes(markup.tag(unit.number), state=state, subState=told)
            attributes = {}
        for number in unit.marks:
            tag = markup.tag(number)
            if markup.tokens[number].name == f"{SDL}seg":
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
