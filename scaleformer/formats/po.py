"""gettext catalogues (PO): translated messages train, untranslated ones get a translation, every other byte stays.

Format: GNU gettext manual, "The Format of PO Files". Each paragraph of a message is a segment. The first plural form is
the translation of the singular, the others are that of the plural.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaleformer.formats.blocks import CHOICES, Block, BlockBuilder
from scaleformer.formats.po_messages import Field, decoded, escaped, find_messages
from scaleformer.formats.printf import translated
from scaleformer.formats.restoring import Change, least
from scaleformer.formats.rows import Row, one_segment
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

WIDTH = 79  # of a line, as in gettext
_PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")
_CONTROLS = re.compile(
    r"(\x1b\[[\d;]{0,20}m|[\x00-\x08\x0e-\x1f\x7f])|[^\x00-\x08\x0e-\x1f\x7f]+"
)  # colours, bell characters


@dataclass(frozen=True)
class _Unit:
    """A text to translate: the fields for its translation, its blocks, formats such as "c-format", places as above."""

    source: str
    targets: list[Field]
    blocks: list[Block]
    formats: frozenset[str]
    places: tuple[int, int]


class PoFile:
    """A catalogue in the encoding that its header names, else UTF-8; its blocks are those of untranslated messages, or
    those of all translations as they are written. Raises DataError with file and line if it is not a catalogue."""

    def __init__(self, content: bytes, name: str, written: bool = False) -> None:
        self._name = name
        self._bom = BOM_UTF8 * content.startswith(BOM_UTF8)  # before a comment, too
        self._raw = content.removeprefix(self._bom).splitlines(keepends=True)
        lines, self._encoding = decoded(content, name)
        self._wraps = all(len(line) <= WIDTH + 1 for line in lines if not line.startswith("#"))
        self._messages = list(find_messages(lines, name, self._encoding))
        self.left: Counter[str] = Counter()
        self._units = list(self._translations() if written else self._find_units())
        self.blocks = [block for unit in self._units for block in unit.blocks]

    def rows(self, name: str, dropped: Counter[str]) -> Iterator[Row]:
        """The translated messages, of the document `name`; counts the others by reason: fuzzy, obsolete, untranslated
        ones, those with plural forms, and those that begin with the comments ("_:") of old catalogues.

        A message whose translation has another number of paragraphs is a single segment.
        """
        for fields, flags, obsolete, _ in self._messages:
            source, target = fields["msgid"].text, fields["msgstr"].text if "msgstr" in fields else ""
            first, second = _paragraphs(source), _paragraphs(target)
            if obsolete:
                dropped["obsolete"] += 1
            elif "msgid_plural" in fields:
                dropped["plural forms"] += 1
            elif source.startswith("_:"):
                dropped["with a comment in the message"] += 1
            elif "fuzzy" in flags or not (first and second):
                dropped["fuzzy" if "fuzzy" in flags else "untranslated"] += 1
            else:
                if len(first) != len(second):
                    first, second = [one_segment(source)], [one_segment(target)]
                line = next(iter(fields.values())).lines[0]
                yield Row(f"{self._name}:{line + 1}", name, first, second)

    def _find_units(self) -> Iterator[_Unit]:
        for fields, flags, obsolete, places in self._messages:
            sources = [fields[word] for word in ("msgid", "msgid_plural") if word in fields]
            forms = [field for word, field in fields.items() if word.startswith("msgstr")]
            empty = [form for form in forms if not form.text]
            if obsolete:
                self.left["obsolete units"] += 1
            elif "fuzzy" in flags:
                self.left["fuzzy units"] += 1
            elif not empty:
                self.left["translated units"] += 1
            elif sources[0].text.startswith("_:"):
                self.left["units with a comment in the message"] += 1
            else:
                formats = _formats(flags)
                # If the language has a single form, the plural fits every number.
                first = "msgstr[0]" if len(forms) > 1 else "msgstr"
                singular = [form for form in empty if form.word == first]
                plural = [form for form in empty if form.word != first]
                read = [
                    (source.text, targets, message_blocks(source.text, formats))
                    for source, targets in ((sources[0], singular), (sources[-1], plural))
                    if targets
                ]
                units = [_Unit(text, targets, blocks, formats, places) for text, targets, blocks in read if blocks]
                if any(blocks is None for _, _, blocks in read):
                    self.left[CHOICES] += 1
                elif not units:
                    self.left["units without words"] += 1
                else:
                    yield from units

    def _translations(self) -> Iterator[_Unit]:
        for fields, flags, obsolete, places in self._messages:
            for word, field in fields.items():
                if word.startswith("msgstr") and not obsolete:
                    formats = _formats(flags)
                    yield _Unit(field.text, [field], message_blocks(field.text, formats) or [], formats, places)

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The catalogue with translations of the changed blocks; where their confidence is known, a comment has it, and
        unsure messages are fuzzy. Raises DataError with the line if its encoding lacks a character."""
        lines = list(self._raw)
        place = 0
        told: dict[tuple[int, int], list[Change]] = {}  # of all forms of a message, by its places
        for unit in self._units:
            some = changes[place : place + len(unit.blocks)]
            place += len(unit.blocks)
            text = translated(unit.source, unit.blocks, some, unit.formats, self.left) if any(some) else None
            if text is None:
                continue
            told.setdefault(unit.places, []).extend(one for each in some for one in each)
            for target in unit.targets:
                for line in target.lines[1:]:
                    lines[line] = b""
                lines[target.lines[0]] = self._written(target, text)
        for (comment, flags), changed in told.items():
            confidence, unsure = least(changed)
            if unsure:
                old = lines[flags]
                new = old.replace(b"#,", b"#, fuzzy,", 1)
                lines[flags] = new if old.lstrip().startswith(b"#,") else b"#, fuzzy" + self._newline + old
            if confidence is not None:
                lines[comment] = b"# confidence: %.0f" % confidence + self._newline + lines[comment]
        content = self._bom + b"".join(lines)
        return content.replace(b"charset=CHARSET", b"charset=UTF-8", 1) if told else content  # as of a template

    @property
    def _newline(self) -> bytes:
        return b"\r\n" if self._raw[0].endswith(b"\r\n") else b"\r" if self._raw[0].endswith(b"\r") else b"\n"

    def _written(self, target: Field, text: str) -> bytes:
        """The lines of a message's translation."""
        last = self._raw[target.lines[-1]]
        end = last[len(last.rstrip(b"\r\n")) :]
        quoted = [f'"{escaped(line)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
        if len(quoted) > 1 or (self._wraps and len(f"{target.word} {quoted[0]}") > WIDTH):
            quoted = ['""', *(piece for line in quoted for piece in (_wrapped(line) if self._wraps else [line]))]
        try:
            return self._newline.decode().join([f"{target.word} {quoted[0]}", *quoted[1:]]).encode(self._encoding) + end
        except UnicodeEncodeError as error:
            where, what = f"{self._name}:{target.lines[0] + 1}", shown(error.object[error.start])
            reason = f"the translation has {what}, which {self._encoding} lacks"
            raise DataError(f"{where}: {reason}: convert the file with msgconv --to-code=UTF-8") from None


def _formats(flags: set[str]) -> frozenset[str]:
    return frozenset(flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-"))


def _paragraphs(text: str) -> list[str]:
    return [line for part in _PARAGRAPHS.split(text) if (line := one_segment(part))]


def message_blocks(text: str, formats: frozenset[str]) -> list[Block] | None:
    """The blocks of a message; None if it has a choice between messages inside a sentence."""
    blocks: list[Block] = []
    place = 0
    for start, stop in [*(found.span() for found in _PARAGRAPHS.finditer(text)), (len(text), len(text))]:
        builder = BlockBuilder(flags=formats)
        for piece in _CONTROLS.finditer(text, place, start):
            if piece[1]:
                builder.span(piece[1], *piece.span())
            else:
                builder.text(piece[0], piece.start())
        if (some := builder.messages()) is None:
            return None
        blocks += some
        place = stop
    return blocks


def _wrapped(quoted: str) -> Iterator[str]:
    """Split a quoted text into lines of at most `WIDTH`, unless a word is longer."""
    line = ""
    for word in re.findall(r"[^ ]* +|[^ ]+", quoted[1:-1]):
        if line and len(line + word.rstrip(" ")) > WIDTH - 2:
            yield f'"{line}"'
            line = ""
        line += word
    yield f'"{line}"'
