"""gettext catalogues (PO): untranslated messages get a translation, every other byte stays.

The grammar is that of `scaleformer.formats.po_pairs`. Each paragraph of a message is a block. The first plural form is
the translation of the singular, the others are that of the plural.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scaleformer.formats.breaks import break_again
from scaleformer.formats.po_pairs import Part, decode_catalogue, find_messages, unescape
from scaleformer.formats.printf import moved, numbered, same_placeholders
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import MARK, Block, BlockBuilder, Span
from scaleformer.formats.splicing import Edit, splice
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

WIDTH = 79  # of a line, as in gettext
_PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")
_CONTROLS = re.compile(
    r"(\x1b\[[\d;]{0,20}m|[\x00-\x08\x0e-\x1f\x7f])|[^\x00-\x08\x0e-\x1f\x7f]+"
)  # colours, bell characters
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPES = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}


class _Field(NamedTuple):
    """msgid, msgstr[1] ... of a message, with the indices of its lines."""

    word: str
    lines: list[int]
    text: str


@dataclass(frozen=True)
class _Unit:
    """A text to translate: the fields for its translation, its blocks, formats such as "c-format"."""

    source: str
    targets: list[_Field]
    blocks: list[Block]
    formats: set[str]


class PoFile:
    """The untranslated messages of a catalogue, in the encoding that its header names, else UTF-8.

    Raises DataError with file and line if it is not a catalogue.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._name = name
        self._raw = content.splitlines(keepends=True)
        self._lines, self._encoding = decode_catalogue(content, name)
        if (null := next((number for number, line in enumerate(self._lines, 1) if "\0" in line), None)) is not None:
            raise DataError(f"{name}:{null}: a null character: not a text file")
        self._wraps = all(len(line) <= WIDTH + 1 for line in self._lines if not line.startswith("#"))
        self.left: Counter[str] = Counter()
        self._units = list(self._find_units())
        self.blocks = [block for unit in self._units for block in unit.blocks]

    def _find_units(self) -> Iterator[_Unit]:
        end = 0
        for message in find_messages(self._lines, self._name):
            comments = self._lines[end : message[0].line]
            flags = {flag.strip() for line in comments if line.startswith("#,") for flag in line[2:].split(",")}
            end = message[-1].line + 1
            fields = {field.word: field for field in self._fields(message)}
            sources = [fields[word] for word in ("msgid", "msgid_plural") if word in fields]
            forms = [field for word, field in fields.items() if word.startswith("msgstr")]
            empty = [form for form in forms if not form.text]
            if not sources[0].text and "msgctxt" not in fields:
                continue  # the header
            if message[0].obsolete:
                self.left["obsolete units"] += 1
            elif "fuzzy" in flags:
                self.left["fuzzy units"] += 1
            elif not empty:
                self.left["translated units"] += 1
            elif sources[0].text.startswith("_:"):
                self.left["units with a comment in the message"] += 1
            else:
                formats = {flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-")}
                # If the language has a single form, the plural fits every number.
                first = "msgstr[0]" if len(forms) > 1 else "msgstr"
                singular = [form for form in empty if form.word == first]
                plural = [form for form in empty if form.word != first]
                units = [
                    _Unit(source.text, targets, list(_blocks(source.text)), formats)
                    for source, targets in ((sources[0], singular), (sources[-1], plural))
                    if targets
                ]
                if not any(unit.blocks for unit in units):
                    self.left["units without words"] += 1
                yield from (unit for unit in units if unit.blocks)

    def _fields(self, message: Sequence[Part]) -> Iterator[_Field]:
        begins = [place for place, part in enumerate(message) if part.word]
        for begin, end in zip(begins, [*begins[1:], len(message)], strict=True):
            parts = message[begin:end]
            where = f"{self._name}:{parts[0].line + 1}"
            text = unescape([part.quoted for part in parts], where, self._encoding)
            yield _Field(parts[0].word, [part.line for part in parts], text)

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The catalogue with translations of the changed blocks. Raises DataError with the line if its encoding lacks
        a character."""
        lines = list(self._raw)
        place = 0
        for unit in self._units:
            some = changes[place : place + len(unit.blocks)]
            place += len(unit.blocks)
            text = self._translation(unit, some) if any(some) else None
            for target in unit.targets if text is not None else ():
                for line in target.lines[1:]:
                    lines[line] = b""
                lines[target.lines[0]] = self._written(target, text or "")
        return b"".join(lines)

    def _translation(self, unit: _Unit, changes: Sequence[Sequence[Change]]) -> str | None:
        """None, and counted, if the program could not fill in its placeholders."""
        written: dict[int, str] | None = {}
        if unit.formats and moved(unit.blocks, changes):
            written = numbered(unit.source, unit.blocks, unit.formats)
        if unit.formats and not same_placeholders(unit.source, _spliced(unit, changes, {})):
            self.left["units whose translation loses placeholders"] += 1
        elif written is None:
            self.left["units whose translation moves placeholders without names"] += 1
        else:
            return _spliced(unit, changes, written)
        return None

    def _written(self, target: _Field, text: str) -> bytes:
        """The lines of a message's translation."""
        last = self._raw[target.lines[-1]]
        end = last[len(last.rstrip(b"\r\n")) :]
        newline = "\r\n" if self._raw[0].endswith(b"\r\n") else "\r" if self._raw[0].endswith(b"\r") else "\n"
        quoted = [f'"{_escaped(line)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
        if len(quoted) > 1 or (self._wraps and len(f"{target.word} {quoted[0]}") > WIDTH):
            quoted = ['""', *(piece for line in quoted for piece in (_wrapped(line) if self._wraps else [line]))]
        try:
            return newline.join([f"{target.word} {quoted[0]}", *quoted[1:]]).encode(self._encoding) + end
        except UnicodeEncodeError as error:
            where, what = f"{self._name}:{target.lines[0] + 1}", shown(error.object[error.start])
            reason = f"the translation has {what}, which {self._encoding} lacks"
            raise DataError(f"{where}: {reason}: convert the file with msgconv --to-code=UTF-8") from None


def _blocks(text: str) -> Iterator[Block]:
    place = 0
    for start, stop in [*(found.span() for found in _PARAGRAPHS.finditer(text)), (len(text), len(text))]:
        builder = BlockBuilder()
        for piece in _CONTROLS.finditer(text, place, start):
            if piece[1]:
                builder.span(piece[1], *piece.span())
            else:
                builder.text(piece[0], piece.start())
        if block := builder.build():
            yield block
        place = stop


def _spliced(unit: _Unit, changes: Sequence[Sequence[Change]], written: dict[int, str]) -> str:
    """The text of a unit with its changes; written: the new text of spans, by their `id`."""
    edits: list[Edit] = []
    for block, some in zip(unit.blocks, changes, strict=True):
        changed = set()
        for change in some:
            parts = break_again(block, change, lambda start, stop: unit.source[start:stop])
            texts = [written.get(id(p), str(p.content)) if isinstance(p, Span) else p for p in parts]
            edits.append((*block.origin(change.start, change.stop), "".join(texts)))
            changed |= set(range(change.start, change.stop))
        marks = (place for place, character in enumerate(block.text) if character == MARK)
        for place, span in zip(marks, block.spans, strict=True):
            if id(span) in written and place not in changed:
                edits.append((*block.origins[place], written[id(span)]))
    return splice(unit.source, edits)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\\" + _ESCAPES.get(found[0], f"{ord(found[0]):03o}"), text)


def _wrapped(quoted: str) -> Iterator[str]:
    """Split a quoted text into lines of at most `WIDTH`, unless a word is longer."""
    line = ""
    for word in re.findall(r"[^ ]* +|[^ ]+", quoted[1:-1]):
        if line and len(line + word.rstrip(" ")) > WIDTH - 2:
            yield f'"{line}"'
            line = ""
        line += word
    yield f'"{line}"'
