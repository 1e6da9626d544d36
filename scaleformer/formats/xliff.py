"""XLIFF 1.2 and 2.x: units without a translation get one, every other byte stays.

Sources: OASIS, "XLIFF Version 1.2" and "XLIFF Version 2.1". Inline elements are spans; those that the format pairs are
the two ends of a pair (<g>, <pc>, <mrk>; <bx> and <ex>, <bpt> and <ept>, <sc> and <ec>, <sm> and <em>). Content marked
as not translatable is one span. <ignorable>, <alt-trans> and <sub> stay as they are.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaleformer.formats.breaks import break_again
from scaleformer.formats.markup import Markup, Token, decode_xml, encode_xml, with_attributes
from scaleformer.formats.restoring import Change
from scaleformer.formats.rows import brief
from scaleformer.formats.segments import Block, BlockBuilder, Span
from scaleformer.formats.splicing import Edit, splice
from scaleformer.system.errors import DataError

_ENCLOSING = ("g", "pc", "mrk")
_OPENING = ("bx", "bpt", "sc", "sm")
_CLOSING = ("ex", "ept", "ec", "em")
_DRAFTS = ("new", "needs-translation", "initial")


@dataclass(frozen=True)
class _Unit:
    """A <trans-unit> or <segment>: the numbers of its tokens, and the parts of its source.

    source  the element to translate, followed by the target
    target  None if there is none
    pieces  the file text of each character or tag of the source; the content of a span is its index here
    """

    number: int
    source: int
    target: int | None
    pieces: list[str]
    block: Block


class XliffFile:
    """The units of all <file> elements that have no translation, or one that is "new" or "initial".

    Raises DataError with file and line if it is not XLIFF, declares entities or is nested too deeply.
    """

    def __init__(self, content: bytes, name: str) -> None:
        text, self._encoding = decode_xml(content, name)
        self._markup = markup = Markup(text, name)
        root = markup.tokens[markup.root]
        self._namespace = root.name.rpartition("}")[0]
        if self._local(root) != "xliff":
            what = brief(root.name.rpartition("}")[2])
            raise DataError(f"{markup.where(markup.root)}: <{what}>, wanted <xliff>")
        self.left: Counter[str] = Counter()
        self._units = list(self._find_units(markup.root, True))
        self.blocks = [unit.block for unit in self._units]

    def _local(self, token: Token) -> str:
        """The name of an element of XLIFF; "" for others."""
        namespace, _, name = token.name.rpartition("}")
        return name if token.kind == "start" and namespace == self._namespace else ""

    def _children(self, number: int, *names: str) -> list[int]:
        children = self._markup.children(number)
        return [child for child in children if self._local(self._markup.tokens[child]) in names]

    def _find_units(self, number: int, translated: bool) -> Iterator[_Unit]:
        """The units inside an element; translated: whether the enclosing elements allow translation."""
        token = self._markup.tokens[number]
        translated = token.attributes.get("translate", "yes" if translated else "no") != "no"
        name = self._local(token)
        if name == "trans-unit":
            yield from self._read_unit(number, translated)
        elif name == "unit":
            for segment in self._children(number, "segment"):
                yield from self._read_unit(segment, translated)
        else:
            for child in self._children(number, "file", "body", "group", "unit", "trans-unit"):
                yield from self._find_units(child, translated)

    def _read_unit(self, number: int, translated: bool) -> Iterator[_Unit]:
        sources = self._children(number, "source", "seg-source")
        target = next(iter(self._children(number, "target")), None)
        if not sources:
            raise DataError(f"{self._markup.where(number)}: a unit without <source>")
        state = self._state(number, target)
        if not translated:
            self.left["units not to be translated"] += 1
        elif target is not None and self._has_text(target) and state not in _DRAFTS:
            self.left["translated units"] += 1
        else:
            pieces: list[str] = []
            builder = BlockBuilder()
            self._read_source(sources[-1], builder, pieces, {})
            block = builder.build()
            if block is None:
                self.left["units without words"] += 1
            else:
                yield _Unit(number, sources[-1], target, pieces, block)

    def _state(self, number: int, target: int | None) -> str | None:
        holder = number if self._local(self._markup.tokens[number]) == "segment" or target is None else target
        return self._markup.tokens[holder].attributes.get("state")

    def _has_text(self, number: int) -> bool:
        tokens = self._markup.tokens[number : self._markup.ends[number]]
        return any(token.kind == "text" and token.text.strip() for token in tokens)

    def _read_source(
        self, number: int, builder: BlockBuilder, pieces: list[str], pairs: dict[tuple[str, str], int]
    ) -> None:
        """Add the characters and tags inside an element to the builder, with their places in `pieces`."""
        markup = self._markup

        def put(raw: str, pair: int | None = None, opens: bool = False) -> None:
            builder.span(len(pieces), len(pieces), len(pieces) + 1, pair, opens)
            pieces.append(raw)

        for child in markup.children(number):
            token = markup.tokens[child]
            name, attributes = self._local(token), token.attributes
            if token.kind == "text":
                for character in token.text:
                    builder.character(character, len(pieces), len(pieces) + 1)
                    # Line ends and references keep their form in the file.
                    written = markup.tag(child) if len(token.text) == 1 else character
                    pieces.append(written if len(written) > 1 else _escape(written))
            elif token.kind != "start":
                continue
            elif name in _ENCLOSING and not markup.tag(child).endswith("/>") and not _is_protected(attributes):
                put(markup.tag(child), child, True)
                self._read_source(child, builder, pieces, pairs)
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
        """The file with the translations of the changed units, whose state is then "translated"."""
        edits = [
            edit
            for unit, some in zip(self._units, changes, strict=True)
            if some
            for edit in self._edits(unit, self._translation(unit, some))
        ]
        return encode_xml(splice(self._markup.content, edits), self._encoding)

    def _translation(self, unit: _Unit, changes: Sequence[Change]) -> str:
        def written(start: int, stop: int) -> str:
            return html.unescape("".join(unit.pieces[start:stop]))

        pieces, place = [], 0
        for change in changes:
            text = "".join(
                unit.pieces[part.content]
                if isinstance(part, Span) and isinstance(part.content, int)
                else _escape(str(part.content) if isinstance(part, Span) else part)
                for part in break_again(unit.block, change, written)
            )
            start, stop = unit.block.origin(change.start, change.stop)
            pieces += [*unit.pieces[place:start], text]
            place = stop
        return "".join([*pieces, *unit.pieces[place:]])

    def _edits(self, unit: _Unit, text: str) -> Iterator[Edit]:
        markup = self._markup
        attributes: dict[str, str | None] = {"state": "translated", "state_qualifier": None}
        holder = markup.tokens[unit.number]
        if self._local(holder) == "segment":
            yield holder.start, holder.stop, with_attributes(markup.tag(unit.number), state="translated", subState=None)
            attributes = {}
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


def _escape(text: str) -> str:
    return html.escape(text, quote=False)


def _is_protected(attributes: dict[str, str]) -> bool:
    return attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
