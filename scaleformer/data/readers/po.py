"""gettext catalogues (PO), read by translate-toolkit: a translated message is a segment.

Format: GNU gettext manual, "The Format of PO Files". The toolkit passes over what it does not understand: what belongs
to no message, a message that ends half-way, escapes other than six. So the grammar is looked at first, and escapes are
read here.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scaleformer.data.errors import DataError
from scaleformer.data.readers.lines import opened
from scaleformer.data.readers.rows import Row, brief
from scaleformer.data.readers.toolkit import one_segment, toolkit
from scaleformer.system.schema import shown

_CHARSET = re.compile(
    rb'^msgid[ \t]*""\s+msgstr[ \t]*(?:"[^\r\n]*[\r\n]+[ \t]*)*?"[^\r\n]*?charset=[ \t]*([\w.:-]+)', re.MULTILINE
)
#: Those of gettext; Python has others, for other ends, and some that take hours.
CHARSETS = re.compile(r"utf-?8|(?:us-)?ascii|(?:iso|koi8|cp|windows|gb|big5|euc|shift|johab|tis|tcvn|viscii).*")
_COMMENT = re.compile(r"#(?!~).*|#~[ \t]*(?:\|.*)?")
_WORDS = {"msgctxt": "c", "msgid": "i", "msgid_plural": "p", "msgstr": "s", "": "q"}  # n: msgstr[1], q: goes on
_PART = re.compile(rf'(#~[ \t]*)?({"|".join(_WORDS)}|msgstr\[\d+\])[ \t]*("[^"\\]*(?:\\.[^"\\]*)*")')
_WHOLE = "(?:cq*)?iq*(?:sq*|pq*(?:nq*)+)"
_MESSAGE = re.compile(f"{_WHOLE}|{_WHOLE.upper()}")
_ESCAPE = re.compile(rb"\\(?:([abfnrtv\"\\?'])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_CONTROLS = dict(zip((b"a", b"b", b"f", b"n", b"r", b"t", b"v"), (bytes([c]) for c in b"\a\b\f\n\r\t\v"), strict=True))


def read_po(path: Path, name: str, dropped: Counter[str]) -> Iterator[Row]:
    """The translated messages of a file as rows of the document `name`.

    Left out and counted: fuzzy, obsolete, untranslated, with plural forms, with the comments inside of messages ("_:")
    of old catalogues. In the encoding that the header names, else UTF-8. Raises DataError with file and line.
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
    except Exception as error:  # the toolkit raises whatever it stumbles over
        raise DataError(f"{path}:{state.lineno}: malformed PO ({brief(error)})") from None
    for unit in units:
        where = f"{path}:{unit._line_number}"
        source = one_segment(unescape(unit.msgid, where, encoding))
        if not source and not unit.msgctxt and not unit.msgidcomments:
            continue  # the header, or comments alone
        reason = _reason(unit)
        target = "" if reason else one_segment(unescape(unit.msgstr, where, encoding))
        if source and target:
            yield Row(where, name, (source,), (target,))
        else:
            dropped[reason or "untranslated"] += 1


def _reason(unit: Any) -> str:
    """Why a message is left out, whatever its texts."""
    if unit.isobsolete():
        return "obsolete"
    if unit.hasplural():
        return "plural forms"
    if unit.msgidcomments:  # which the toolkit takes out of the text wherever a line begins so
        return "with a comment in the message"
    return "fuzzy" if unit.isfuzzy() else ""


def decode_catalogue(data: bytes, path: str | Path) -> tuple[list[str], str]:
    """The lines of a catalogue, without white space at their ends, and its encoding: what its header says, else UTF-8.

    Raises DataError, with the line, where it is in another, and for one that gettext does not know.
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
    word      "msgid", "msgstr[1]", ...; "" where a text goes on
    obsolete  whether the line is commented out
    quoted    its text, in quotation marks, with escapes
    """

    line: int
    word: str
    obsolete: bool
    quoted: str


def find_messages(lines: list[str], path: str | Path) -> list[list[Part]]:
    """The messages of a catalogue. Raises DataError where a line is none of one, or a message lacks a part."""
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
            raise DataError(f"{where}: a message begins here that is not whole: {wanted}")
        messages.append(parts[place : whole.end()])
        place = whole.end()
    return messages


def unescape(quoted: list[str], where: str, encoding: str) -> str:
    """The text between quotation marks. Raises DataError for escapes that are none."""

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
        raise DataError(f"{where}: the escapes \\NNN of this message are not {encoding.upper()}") from None
