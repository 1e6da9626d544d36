"""A strict reader of gettext .po files: one file is one document, one translated message one segment.

Format: GNU gettext manual, "The Format of PO Files".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scaleformer.data.errors import DataError
from scaleformer.data.readers.documents import Document
from scaleformer.data.readers.lines import read_lines

_SPACE = " \t\n\r\f\v"  # what gettext takes for white space: others, such as no-break spaces, are text
_KEYWORD = re.compile(rf"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[{_SPACE}]*(.*)")
_SPACES = re.compile(f"[{_SPACE}]+")
_ESCAPE = re.compile(rb"\\(?:([abfnrtv\"\\?'])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.|$))")
_CONTROLS = dict(zip((b"a", b"b", b"f", b"n", b"r", b"t", b"v"), (bytes([c]) for c in b"\a\b\f\n\r\t\v"), strict=True))


@dataclass
class _Entry:
    fuzzy: bool = False
    obsolete: bool = False
    texts: dict[str, list[str]] = field(default_factory=dict)


def read_po_tree(path: str | Path, dropped: Counter[str]) -> Iterator[Document]:
    """Documents of a .po file or of all .po files below a folder, by name; `dropped` counts the messages left out.

    Left out: fuzzy, obsolete, untranslated, with plural forms. White space (ASCII) is collapsed: a segment is a line.
    Files without any translated message give no document and are counted. Raises DataError with file and line.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    files = sorted(path.rglob("*.po")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no .po files below this folder")
    for file in files:
        pairs = list(read_po(file, dropped))
        name = (file.relative_to(path) if path.is_dir() else Path(file.name)).with_suffix("").as_posix()
        if pairs:
            source, target = zip(*pairs, strict=True)
            yield Document(name, source, target)
        else:
            dropped["files without a translated message"] += 1


def read_po(path: Path, dropped: Counter[str]) -> Iterator[tuple[str, str]]:
    """Messages and translations of one file, without the header."""
    for entry in _entries(path):
        texts = {keyword: _SPACES.sub(" ", "".join(parts)).strip(" ") for keyword, parts in entry.texts.items()}
        if entry.obsolete:
            dropped["obsolete"] += 1
        elif "msgid_plural" in texts:
            dropped["plural forms"] += 1
        elif not texts["msgid"] and "msgctxt" not in texts:
            continue  # the header
        elif entry.fuzzy:
            dropped["fuzzy"] += 1
        elif not texts["msgid"] or not texts["msgstr"]:
            dropped["untranslated"] += 1
        else:
            yield texts["msgid"], texts["msgstr"]


def _entries(path: Path) -> Iterator[_Entry]:
    entry, current, number = _Entry(), "", 0
    for number, line in read_lines(path, "po"):
        where = f"{path}:{number}"
        text = line.strip(_SPACE)
        obsolete = text.startswith("#~")
        text = text.removeprefix("#~").strip(_SPACE) if obsolete else text
        keyword = _KEYWORD.fullmatch(text)
        begins = text.startswith("#") or not text or (keyword and keyword[1] in ("msgctxt", "msgid"))
        if begins and any(key.startswith("msgstr") for key in entry.texts):
            yield entry
            entry, current = _Entry(), ""
        if not text or text.startswith(("#|", "#~|", "|")):
            continue
        if text.startswith("#"):
            entry.fuzzy |= text.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", text)
            continue
        if keyword:
            current, text = keyword[1], keyword[2]
            _check_order(entry, current, where)
            entry.obsolete |= obsolete
            entry.texts[current] = []
        elif not current:
            raise DataError(f"{where}: {text[:40]!r} belongs to no message (wanted msgid, msgstr or a comment)")
        entry.texts[current].append(_unquote(text, where))
    if any(key.startswith("msgstr") for key in entry.texts):
        yield entry
    elif entry.texts:
        raise DataError(f"{path}:{number}: the file ends inside a message: msgstr is missing")


def _check_order(entry: _Entry, keyword: str, where: str) -> None:
    if keyword in entry.texts:
        raise DataError(f"{where}: a second {keyword} in one message")
    if keyword not in ("msgctxt", "msgid") and "msgid" not in entry.texts:
        raise DataError(f"{where}: {keyword} without a msgid before it")
    if keyword == "msgstr" and "msgid_plural" in entry.texts:
        raise DataError(f"{where}: msgstr after msgid_plural, wanted msgstr[0]")
    if keyword.startswith("msgstr[") and "msgid_plural" not in entry.texts:
        raise DataError(f"{where}: {keyword} without a msgid_plural before it, wanted msgstr")


def _unquote(text: str, where: str) -> str:
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        raise DataError(f"{where}: {text[:40]!r}: wanted a text in double quotes")

    def character(match: re.Match[bytes]) -> bytes:
        plain, octal, hexadecimal, other = match.groups()
        number = int(octal, 8) if octal else int(hexadecimal or b"0", 16)
        if other is not None or number > 255:
            raise DataError(f"{where}: unknown escape {match.group().decode(errors='replace')}")
        return _CONTROLS.get(plain, plain) if plain else bytes([number])

    inner = text[1:-1].encode()
    if b'"' in re.sub(rb"\\.", b"", inner):
        raise DataError(f'{where}: a double quote inside the text must be written \\"')
    try:
        return _ESCAPE.sub(character, inner).decode()  # numbers are bytes of the text, in the encoding of the file
    except UnicodeDecodeError:
        raise DataError(f"{where}: the escapes \\NNN of {text[:40]!r} are not UTF-8") from None
