"""Edits of text files: translations replace their source, with as many line breaks; everything else stays."""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from scaleformer.formats.blocks import Block, BlockBuilder, Span
from scaleformer.formats.restoring import Change
from scaleformer.system.errors import DataError

Edit = tuple[int, int, str]  # a range of the content and its replacement

#: The character sets of gettext and XML. Python has others, some of which take hours to decode.
CHARSETS = re.compile(r"utf-?8|(?:us-)?ascii|(?:iso|koi8|cp|windows|gb|big5|euc|shift|johab|tis|tcvn|viscii).*")
_CHARSET = re.compile(rb"""(?:<meta[^>]+charset|<\?xml[^>]+encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
# Characters that XML or a line must not contain: controls, line separators, surrogates.
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]+")
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_DASHES = ("-", "–", "—")
_INK = re.compile(r"(?!\\\r?\n)\S")  # what is neither white space nor a mark of a continued line
BEGIN, END = "Zq7Begin7qZ", "Zq7End7qZ"  # around a text, of characters that no format encodes
ANEW = "files written anew, with other quotes, escapes or layout: compare them"
_MARKED = re.compile(f"{BEGIN}(.*?){END}", re.DOTALL)


def splice(content: str, edits: Iterable[Edit], start: int = 0, stop: int | None = None) -> str:
    """content[start:stop] with its edits applied, but without those inside another one, whose text has them already."""
    pieces, place = [], start
    for first, last, text in sorted(edits):
        if first >= place:
            pieces += [content[place:first], text]
            place = last
    return "".join([*pieces, content[place:stop]])


def decode(content: bytes, name: str, declared: bool = False) -> tuple[str, str]:
    """The text of a file and its encoding: UTF-8 or, if `declared`, the encoding that the HTML declares. Raises
    DataError if it is in neither, or contains a null character."""
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
    """The bytes of HTML or XML, with character references where its encoding lacks a character."""
    return text.encode(encoding, "xmlcharrefreplace")


class Break(str):
    """A line break as the file writes it."""


def plain(text: str) -> str:
    """Model output as a line that is valid in every format."""
    return _UNWRITABLE.sub(" ", text)


def escape_html(text: str) -> str:
    """Prose as text of HTML or XML."""
    return html.escape(text, quote=False)


def add_referenced(builder: BlockBuilder, content: str, start: int, stop: int) -> None:
    """Add content[start:stop], which has references such as `&amp;`, to a block."""
    for found in _REFERENCE.finditer(content, start, stop):
        builder.text(content[start : found.start()], start)
        written, character = found[0], html.unescape(found[0])
        first, start = found.span()
        if len(character) == 1:
            builder.character(character, first, start, written)
        elif character == written and written[-1] != ";":
            builder.text(written, first)
        else:
            builder.span(written, first, start)
    builder.text(content[start:stop], start)


def make_edits(
    content: str, blocks: Sequence[Block], changes: Sequence[Sequence[Change]], escape: Callable[[str], str] = str
) -> list[Edit]:
    """The changes of blocks with text spans as edits of the content that they come from."""
    return [
        (*block.origin(change.start, change.stop), render(block, change, lambda i, j: content[i:j], escape))
        for block, some in zip(blocks, changes, strict=True)
        for change in some
    ]


def render(
    block: Block,
    change: Change,
    written: Callable[[int, int], str],
    escape: Callable[[str], str] = str,
    *,
    letters: bool = False,
) -> str:
    """A change of a block with text spans, encoded for the file: escapes prose and restores line breaks."""
    pieces = []
    for kind, parts in groupby(break_again(block, change, written, letters=letters), type):
        texts = [str(part.content) if isinstance(part, Span) else str(part) for part in parts]
        pieces.append(escape("".join(texts)) if kind is str else "".join(texts))
    return "".join(pieces)


def break_again(
    block: Block, change: Change, written: Callable[[int, int], str], *, letters: bool = False
) -> list[str | Span]:
    """The parts of a change, prose as single characters, with a space turned into a line break for each break of the
    text it replaces.

    written  the file content between two origins; spaces of the block that are line breaks there count as breaks
    letters  break only before letters, so that no line begins with what the format may read as a mark
    Each break goes to the space nearest to its relative position; one before a dash (a new speaker) to a space before a
    dash, if there is one. A translation with few spaces gets fewer lines.
    """
    parts: list[str | Span] = []
    for part in change.parts:
        parts += [part] if isinstance(part, Span) else plain(part)
    breaks = [
        (place, text)
        for place in range(change.start + 1, change.stop - 1)
        if block.text[place] == " " and re.search("[\r\n]", text := written(*block.origins[place]))
    ]
    spaces = [place for place in range(1, len(parts) - 1) if parts[place] == " "]
    if letters:
        spaces = [place for place in spaces if isinstance(after := parts[place + 1], str) and after.isalpha()]
    dashes = [place for place in spaces if parts[place + 1] in _DASHES]
    first = 0  # of the spaces that are left
    for left, (place, text) in zip(range(len(breaks), 0, -1), breaks, strict=True):
        if first == len(spaces):
            break
        last = max(len(spaces) - left, first)  # leave one for each remaining break
        share = (place - change.start) / (change.stop - change.start) * len(parts)
        chosen = None
        if block.text[place + 1] in _DASHES:
            chosen = _nearest(dashes, share, spaces[first], spaces[last])
        if chosen is None:
            chosen = _nearest(spaces, share, spaces[first], spaces[last])
        assert chosen is not None
        parts[chosen] = Break(text)
        first = bisect_right(spaces, chosen)
    return parts


def _nearest(places: Sequence[int], wanted: float, first: int, last: int) -> int | None:
    """The one of these places, in order, from `first` to `last` that is nearest to another; None if there is none."""
    start, stop = bisect_left(places, first), bisect_right(places, last)
    after = bisect_left(places, wanted, start, stop)
    return min(places[max(after - 1, start) : min(after + 1, stop)], key=lambda one: abs(one - wanted), default=None)


def placed(content: str, marked: str, plain: str, left: Counter[str]) -> str:
    """A file with the texts that `plain` has where `marked`, written alike, has others between marks. Where these two
    differ from it outside the texts in more than white space, it is `plain`, which is counted in `left`."""
    content, parts = f"\0{content}\0", _MARKED.split(f"\0{marked}\0")  # literals, and the old texts between them
    ink = [(found.start(), found[0]) for found in _INK.finditer(content)]
    before = _between("".join(text for _, text in ink), ["".join(_INK.findall(text)) for text in parts])
    edits = []
    for (first, last), (start, stop) in zip(before, _between(f"\0{plain}\0", parts), strict=True):
        if last < first or stop < start:
            left[ANEW] += 1
            return plain
        end = ink[last - 1][0] + 1
        text = plain[start - 1 : stop - 1]
        edits.append((min(ink[first][0], end), end, text.strip() if first < last else text))
    return splice(content, edits)[1:-1]


def _between(text: str, parts: Sequence[str]) -> list[tuple[int, int]]:
    """Where the texts between literals stand; one ends before it begins if the literal after it is missing."""
    found, place = [], 0
    for old, literal in zip(["", *parts[1::2]], parts[::2], strict=True):
        start, place = place, place + len(old) if text.startswith(old + literal, place) else text.find(literal, place)
        found.append((start, place))
        place = place + len(literal) if place >= 0 else len(text) + 1
    return found[1:]
