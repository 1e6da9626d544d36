"""The lines of a gettext catalogue and the messages that they make up.

Format: GNU gettext manual, "The Format of PO Files".
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scaleformer.formats.splicing import CHARSETS
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_CHARSET = re.compile(
    rb'^msgid[ \t]*""\s+msgstr[ \t]*(?:"[^\r\n]*[\r\n]+[ \t]*)*?"[^\r\n]*?charset=[ \t]*([\w.:-]+)', re.MULTILINE
)
_COMMENT = re.compile(r"#(?!~).*|#~[ \t]*(?:\|.*)?")
_WORDS = {"msgctxt": "c", "msgid": "i", "msgid_plural": "p", "msgstr": "s", "": "q"}  # n: msgstr[1], q: continues
_PART = re.compile(rf'(#~[ \t]*)?({"|".join(_WORDS)}|msgstr\[\d+\])[ \t]*("[^"\\]*(?:\\.[^"\\]*)*")')
_WHOLE = "(?:cq*)?iq*(?:sq*|pq*(?:nq*)+)"
_MESSAGE = re.compile(rf"#*(?:{_WHOLE}|{_WHOLE.upper()}|\Z)")  # comments stand before a message
_ESCAPE = re.compile(rb"\\(?:([abfnrtv\"\\?'])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPES = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}
_CHARACTERS = {escape.encode(): character.encode() for character, escape in _ESCAPES.items()}


class Field(NamedTuple):
    """msgid, msgstr[1] ... of a message, with the indices of its lines."""

    word: str
    lines: list[int]
    text: str


class Message(NamedTuple):
    """The fields of a message by their words; its flags, such as "fuzzy"; places: the indices of the line before which
    a comment of a translator may stand, and of its flags or of the line before which they may."""

    fields: dict[str, Field]
    flags: set[str]
    obsolete: bool
    places: tuple[int, int]


def decoded(content: bytes, name: str) -> tuple[list[str], str]:
    """The lines of a catalogue, stripped, and its encoding according to its header, else UTF-8. Raises DataError with
    the line if the text is not in that encoding, or if gettext does not know it."""
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


def find_messages(lines: Sequence[str], name: str, encoding: str) -> Iterator[Message]:
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
            word: Field(word, numbers, _unescaped(texts, f"{name}:{numbers[0] + 1}", encoding))
            for word, numbers, texts in quoted
        }
        if fields and (fields["msgid"].text or "msgctxt" in fields):
            comment, flagged = (
                next(number for number, word, text in some if word != "#" or text[:2] in kinds)
                for kinds in (("#.", "#:", "#,", "#|"), ("#,", "#|"))
            )
            yield Message(fields, flags, whole[0].strip("#").isupper(), (comment, flagged))


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


def escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\\" + _ESCAPES.get(found[0], f"{ord(found[0]):03o}"), text)
