"""Edits of text files: translations replace their source, everything else stays."""

from __future__ import annotations

import re
from collections.abc import Iterable

from scaleformer.system.errors import DataError

Edit = tuple[int, int, str]  # a range of the content and its replacement

#: The character sets of gettext and XML. Python has others, some of which take hours to decode.
CHARSETS = re.compile(r"utf-?8|(?:us-)?ascii|(?:iso|koi8|cp|windows|gb|big5|euc|shift|johab|tis|tcvn|viscii).*")
_CHARSET = re.compile(rb"""(?:<meta[^>]+charset|<\?xml[^>]+encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)


def splice(content: str, edits: Iterable[Edit]) -> str:
    """The content with its edits applied, which must not overlap."""
    pieces, place = [], 0
    for start, stop, text in sorted(edits):
        pieces += [content[place:start], text]
        place = stop
    return "".join([*pieces, content[place:]])


def decode(content: bytes, name: str, declared: bool = False) -> tuple[str, str]:
    """The text of a file and its encoding: UTF-8 or, if `declared`, the encoding that the HTML declares.

    Raises DataError if it is in neither, or contains a null character.
    """
    try:
        text, encoding = content.decode(), "utf-8"
    except UnicodeDecodeError as error:
        charset = _CHARSET.search(content[:4096]) if declared else None
        encoding = charset[1].decode("ascii", "replace") if charset else ""
        try:
            text = content.decode(encoding or "utf-8")
        except (LookupError, UnicodeError):
            line = content.count(b"\n", 0, error.start) + 1
            said = f" nor {encoding}, as it says" if encoding else ""
            raise DataError(f"{name}:{line}: not UTF-8{said}: convert it to UTF-8") from None
    if "\0" in text:
        raise DataError(f"{name}:{text[: text.index(chr(0))].count(chr(10)) + 1}: a null character: not a text file")
    return text, encoding


def encode(text: str, encoding: str) -> bytes:
    """The bytes of a text; HTML in other encodings gets references for characters that they lack."""
    return text.encode(encoding, "xmlcharrefreplace")
