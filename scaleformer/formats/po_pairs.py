"""gettext catalogues (PO), read by translate-toolkit: a translated message is a segment.

Format: GNU gettext manual, "The Format of PO Files". The toolkit silently skips what it does not understand: text that
belongs to no message, incomplete messages, all but six escapes. So this module checks the grammar first and decodes
escapes itself.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scaleformer.formats.lines import opened
from scaleformer.formats.rows import Row, brief
from scaleformer.formats.toolkit import one_segment, toolkit
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_CHARSET = re.compile(
    rb'^msgid[ \t]*""\s+msgstr[ \t]*(?:"[^\r\n]*[\r\n]+[ \t]*)*?"[^\r\n]*?charset=[ \t]*([\w.:-]+)', re.MULTILINE
)
#: The character sets of gettext. Python has others, some of which take hours to decode.
CHARSETS = re.compile(r"utf-?8|(?:us-)?ascii|(?:iso|koi8|cp|windows|gb|big5|euc|shift|johab|tis|tcvn|viscii).*")
_COMMENT = re.compile(r"#(?!~).*|#~[ \t]*(?:\|.*)?")
_WORDS = {"msgctxt": "c", "msgid": "i", "msgid_plural": "p", "msgstr": "s", "": "q"}  # n: msgstr[1], q: continues
_PART = re.compile(rf'(#~[ \t]*)?({"|".join(_WORDS)}|msgstr\[\d+\])[ \t]*("[^"\\]*(?:\\.[^"\\]*)*")')
_WHOLE = "(?:cq*)?iq*(?:sq*|pq*(?:nq*)+)"
_MESSAGE = re.compile(f"{_WHOLE}|{_WHOLE.upper()}")
_ESCAPE = re.compile(rb"\\(?:([abfnrtv\"\\?'])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_CONTROLS = dict(zip((b"a", b"b", b"f", b"n", b"r", b"t", b"v"), (bytes([c]) for c in b"\a\b\f\n\r\t\v"), strict=True))


def read_po(path: Path, name: str, dropped: Counter[str]) -> Iterator[Row]:
    """The translated messages of a file as rows of the document `name`.

    Left out and counted: messages that are fuzzy, obsolete or untranslated, that have plural forms, or that contain the
    comments ("_:") of old catalogues. The header names the encoding, else UTF-8. Raises DataError with file and line.
    """
    poparser, pypo = toolkit("poparser", path), toolkit("pypo", path)
    with opened(path, "po") as file:
        data = file.read()
    lines, encoding = decode_catalogue(data, path)
    find_messages(lines, path)
    units = []
    state = poparser.PoParseState([f"{line}\n" for line in lines], pypo.pounit)
    try:
        while (unit := poparser.parse_unit(state)) is not None:  # not `parse_units`: the lines are decoded
            units.append(unit)
        if not state.eof:
            raise poparser.PoParseError(state)
    except Exception as error:  # the toolkit raises many types
        raise DataError(f"{path}:{state.lineno}: malformed PO ({brief(error)})") from None
    for unit in units:
        where = f"{path}:{unit._line_number}"
        source = one_segment(unescape(unit.msgid, where, encoding))
        if not source and not unit.msgctxt and not unit.msgidcomments:
            continue  # the header, or only comments
        reason = _reason(unit)
        target = "" if reason else one_segment(unescape(unit.msgstr, where, encoding))
        if source and target:
            yield Row(where, name, (source,), (target,))
        else:
            dropped[reason or "untranslated"] += 1


def _reason(unit: Any) -> str:
    """Why a message is left out regardless of its texts; "" if it is not."""
    if unit.isobsolete():
        return "obsolete"
    if unit.hasplural():
        return "plural forms"
    if unit.msgidcomments:  # the toolkit removes them from the text
        return "with a comment in the message"
    return "fuzzy" if unit.isfuzzy() else ""


def decode_catalogue(data: bytes, path: str | Path) -> tuple[list[str], str]:
    """The lines of a catalogue, stripped, and its encoding according to its header, else UTF-8.

    Raises DataError with the line if the text is not in that encoding, or if gettext does not know it.
    """
    found = _CHARSET.search(data)
    encoding = found[1].decode() if found and found[1] != b"CHARSET" else "utf-8"
    lines: list[str] = []
    try:
        if not CHARSETS.fullmatch(encoding.lower()):
            raise LookupError
        unmarked = data.removeprefix(codecs.BOM_UTF8)
        lines.extend(line.decode(encoding).strip(" \t\f\v") for line in unmarked.splitlines())
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} of the line"
        raise DataError(f"{path}:{len(lines) + 1}: not {encoding.upper()} ({place}): convert it to UTF-8") from None
    except LookupError:
        raise DataError(f"{path}: unknown charset={shown(encoding)} in the header: convert it to UTF-8") from None
    return lines, encoding


class Part(NamedTuple):
    """A line of a message.

    line      its index
    word      "msgid", "msgstr[1]", ...; "" if a text continues
    obsolete  whether the line is commented out
    quoted    its text, with quotation marks and escapes
    """

    line: int
    word: str
    obsolete: bool
    quoted: str


def find_messages(lines: list[str], path: str | Path) -> list[list[Part]]:
    """The messages of a catalogue. Raises DataError if a line belongs to no message, or a message lacks a part."""
    words, parts = "", []
    for number, line in enumerate(lines):
        if not line or _COMMENT.fullmatch(line):
            continue
        part = _PART.fullmatch(line)
        if part is None:
            raise DataError(f'{path}:{number + 1}: {shown(line)}: wanted a comment, or msgid, msgstr ... and a "text"')
        word = _WORDS.get(part[2], "n")
        words += word.upper() if part[1] else word
        parts.append(Part(number, part[2], bool(part[1]), part[3]))
    messages, place = [], 0
    while place < len(parts):
        whole = _MESSAGE.match(words, place)
        if whole is None:
            wanted = "wanted msgid and msgstr, or msgid, msgid_plural and msgstr[0] ..., each once"
            where = f"{path}:{parts[place].line + 1}"
            raise DataError(f"{where}: the message that begins here is incomplete: {wanted}")
        messages.append(parts[place : whole.end()])
        place = whole.end()
    return messages


def unescape(quoted: list[str], where: str, encoding: str) -> str:
    """The text between quotation marks. Raises DataError for invalid escapes."""

    def character(match: re.Match[bytes]) -> bytes:
        plain, octal, hexadecimal, other = match.groups()
        number = int(octal, 8) if octal else int(hexadecimal or b"0", 16)
        if other is not None or number > 255:
            raise DataError(f"{where}: unknown escape {match.group().decode(errors='replace')} in this message")
        return _CONTROLS.get(plain, plain) if plain else bytes([number])

    inner = "".join(part[1:-1] for part in quoted)
    if "\\" not in inner:
        return inner
    try:  # numbers are bytes of the text, in the encoding of the file
        return _ESCAPE.sub(character, inner.encode(encoding)).decode(encoding)
    except UnicodeDecodeError:
        raise DataError(f"{where}: the \\NNN escapes of this message are not valid {encoding.upper()}") from None
