"""gettext catalogues (PO): translated messages train, untranslated ones get a translation, every other byte stays.

Format: GNU gettext manual, "The Format of PO Files". Each paragraph of a message is a segment. The first plural form is
the translation of the singular, the others are that of the plural.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from scaleformer.formats.bitexts import Bitext
from scaleformer.formats.blocks import CHOICES, Block, BlockBuilder
from scaleformer.formats.lines import opened
from scaleformer.formats.printf import translated
from scaleformer.formats.restoring import Change, least
from scaleformer.formats.rows import Row, one_segment
from scaleformer.formats.splicing import CHARSETS
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

WIDTH = 79  # of a line, as in gettext
_CHARSET = re.compile(
    rb'^msgid[ \t]*""\s+msgstr[ \t]*(?:"[^\r\n]*[\r\n]+[ \t]*)*?"[^\r\n]*?charset=[ \t]*([\w.:-]+)', re.MULTILINE
)
_COMMENT = re.compile(r"#(?!~).*|#~[ \t]*(?:\|.*)?")
_WORDS = {"msgctxt": "c", "msgid": "i", "msgid_plural": "p", "msgstr": "s", "": "q"}  # n: msgstr[1], q: continues
_PART = re.compile(rf'(#~[ \t]*)?({"|".join(_WORDS)}|msgstr\[\d+\])[ \t]*("[^"\\]*(?:\\.[^"\\]*)*")')
_WHOLE = "(?:cq*)?iq*(?:sq*|pq*(?:nq*)+)"
_MESSAGE = re.compile(rf"#*(?:{_WHOLE}|{_WHOLE.upper()}|\Z)")  # comments stand before a message
_PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")
_CONTROLS = re.compile(
    r"(\x1b\[[\d;]{0,20}m|[\x00-\x08\x0e-\x1f\x7f])|[^\x00-\x08\x0e-\x1f\x7f]+"
)  # colours, bell characters
_ESCAPE = re.compile(rb"\\(?:([abfnrtv\"\\?'])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPES = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}
_CHARACTERS = {escape.encode(): character.encode() for character, escape in _ESCAPES.items()}


def read_rows(path: Path, name: str, bitext: Bitext, dropped: Counter[str]) -> Iterator[Row]:
    """The translated messages of a file as rows of the document `name`.

    Left out and counted: messages that are fuzzy, obsolete or untranslated, that have plural forms, or that begin with
    the comments ("_:") of old catalogues. Raises DataError with file and line.
    """
    with opened(path, "po") as file:
        return PoFile(file.read(), str(path)).rows(name, dropped)


class _Field(NamedTuple):
    """msgid, msgstr[1] ... of a message, with the indices of its lines."""

    word: str
    lines: list[int]
    text: str


class _Message(NamedTuple):
    """The fields of a message by their words; its flags, such as "fuzzy"; places: the indices of the line before which
    a comment of a translator may stand, and of its flags or of the line before which they may."""

    fields: dict[str, _Field]
    flags: set[str]
    obsolete: bool
    places: tuple[int, int]


@dataclass(frozen=True)
class _Unit:
    """A text to translate: the fields for its translation, its blocks, formats such as "c-format", places as above."""

    source: str
    targets: list[_Field]
    blocks: list[Block]
    formats: frozenset[str]
    places: tuple[int, int]


class PoFile:
    """A catalogue in the encoding that its header names, else UTF-8; its blocks are those of untranslated messages, or
    those of all translations as they are written.

    Raises DataError with file and line if it is not a catalogue.
    """

    def __init__(self, content: bytes, name: str, written: bool = False) -> None:
        self._name = name
        self._raw = content.splitlines(keepends=True)
        lines, self._encoding = _decoded(content, name)
        self._wraps = all(len(line) <= WIDTH + 1 for line in lines if not line.startswith("#"))
        self._messages = list(_find_messages(lines, name, self._encoding))
        self.left: Counter[str] = Counter()
        self._units = list(self._translations() if written else self._find_units())
        self.blocks = [block for unit in self._units for block in unit.blocks]

    def rows(self, name: str, dropped: Counter[str]) -> Iterator[Row]:
        """The translated messages, of the document `name`; counts the others by reason.

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
                    (source.text, targets, _blocks(source.text, formats))
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
                    yield _Unit(field.text, [field], _blocks(field.text, formats) or [], formats, places)

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
        return b"".join(lines)

    @property
    def _newline(self) -> bytes:
        return b"\r\n" if self._raw[0].endswith(b"\r\n") else b"\r" if self._raw[0].endswith(b"\r") else b"\n"

    def _written(self, target: _Field, text: str) -> bytes:
        """The lines of a message's translation."""
        last = self._raw[target.lines[-1]]
        end = last[len(last.rstrip(b"\r\n")) :]
        quoted = [f'"{_escaped(line)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
        if len(quoted) > 1 or (self._wraps and len(f"{target.word} {quoted[0]}") > WIDTH):
            quoted = ['""', *(piece for line in quoted for piece in (_wrapped(line) if self._wraps else [line]))]
        try:
            return self._newline.decode().join([f"{target.word} {quoted[0]}", *quoted[1:]]).encode(self._encoding) + end
        except UnicodeEncodeError as error:
            where, what = f"{self._name}:{target.lines[0] + 1}", shown(error.object[error.start])
            reason = f"the translation has {what}, which {self._encoding} lacks"
            raise DataError(f"{where}: {reason}: convert the file with msgconv --to-code=UTF-8") from None


def _decoded(content: bytes, name: str) -> tuple[list[str], str]:
    """The lines of a catalogue, stripped, and its encoding according to its header, else UTF-8.

    Raises DataError with the line if the text is not in that encoding, or if gettext does not know it.
    """
    found = _CHARSET.search(content)
    encoding = found[1].decode() if found and found[1] != b"CHARSET" else "utf-8"
    lines: list[str] = []
    try:
        if not CHARSETS.fullmatch(encoding.lower()):
            raise LookupError
        for line in content.removeprefix(codecs.BOM_UTF8).splitlines():
            lines.append(line.decode(encoding).strip(" \t\f\v"))
            if "\0" in lines[-1]:
                raise DataError(f"{name}:{len(lines)}: a null character: not a text file")
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} of the line"
        raise DataError(f"{name}:{len(lines) + 1}: not {encoding.upper()} ({place}): convert it to UTF-8") from None
    except LookupError:
        raise DataError(f"{name}: unknown charset={shown(encoding)} in the header: convert it to UTF-8") from None
    return lines, encoding


def _find_messages(lines: Sequence[str], name: str, encoding: str) -> Iterator[_Message]:
    """The messages but for the header. Raises DataError if a line belongs to no message, or a message lacks a part."""
    words = ""
    parts: list[tuple[int, str, str]] = []  # index, first word ("" if a text continues) and text of lines
    for number, line in enumerate(lines):
        if _COMMENT.fullmatch(line):
            words += "#"
            parts.append((number, "#", line))
        elif line:
            part = _PART.fullmatch(line)
            if part is None:
                wanted = 'wanted a comment, or msgid, msgstr ... and a "text"'
                raise DataError(f"{name}:{number + 1}: {shown(line)}: {wanted}")
            word = _WORDS.get(part[2], "n")
            words += word.upper() if part[1] else word
            parts.append((number, part[2], part[3]))
    place = 0
    while place < len(parts):
        whole = _MESSAGE.match(words, place)
        if whole is None:
            where = f"{name}:{next(number for number, word, _ in parts[place:] if word != '#') + 1}"
            wanted = "wanted msgid and msgstr, or msgid, msgid_plural and msgstr[0] ..., each once"
            raise DataError(f"{where}: the message that begins here is incomplete: {wanted}")
        flags: set[str] = set()
        quoted: list[tuple[str, list[int], list[str]]] = []
        some = parts[place : whole.end()]
        for number, word, text in some:
            if text.startswith("#,"):
                flags |= {flag.strip() for flag in text[2:].split(",")}
            elif word and word != "#":
                quoted.append((word, [number], [text]))
            elif not word:
                quoted[-1][1].append(number)
                quoted[-1][2].append(text)
        place = whole.end()
        fields = {
            word: _Field(word, numbers, _unescaped(texts, f"{name}:{numbers[0] + 1}", encoding))
            for word, numbers, texts in quoted
        }
        if fields and (fields["msgid"].text or "msgctxt" in fields):
            comment, flagged = (
                next(number for number, word, text in some if word != "#" or text[:2] in kinds)
                for kinds in (("#.", "#:", "#,", "#|"), ("#,", "#|"))
            )
            yield _Message(fields, flags, whole[0].strip("#").isupper(), (comment, flagged))


def _unescaped(quoted: Sequence[str], where: str, encoding: str) -> str:
    """The text between quotation marks. Raises DataError for invalid escapes."""

    def character(match: re.Match[bytes]) -> bytes:
        plain, octal, hexadecimal, other = match.groups()
        number = int(octal, 8) if octal else int(hexadecimal or b"0", 16)
        if other is not None or number > 255:
            raise DataError(f"{where}: unknown escape {match.group().decode(errors='replace')} in this message")
        return _CHARACTERS.get(plain, plain) if plain else bytes([number])

    inner = "".join(part[1:-1] for part in quoted)
    if "\\" not in inner:
        return inner
    try:  # numbers are bytes of the text, in the encoding of the file
        return _ESCAPE.sub(character, inner.encode(encoding)).decode(encoding)
    except UnicodeDecodeError:
        raise DataError(f"{where}: the \\NNN escapes of this message are not valid {encoding.upper()}") from None


def _formats(flags: set[str]) -> frozenset[str]:
    return frozenset(flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-"))


def _paragraphs(text: str) -> list[str]:
    return [line for part in _PARAGRAPHS.split(text) if (line := one_segment(part))]


def _blocks(text: str, formats: frozenset[str]) -> list[Block] | None:
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
