"""XML as tokens with their positions in the file, so that edits change nothing else, or as a stream of tokens.

The parser is expat: unlike lxml it reports positions. It expands no entities and reads nothing outside the file; files
that declare entities are refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple
from xml.parsers import expat

from scaleformer.formats.rows import brief
from scaleformer.formats.splicing import CHARSETS
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

XML = "http://www.w3.org/XML/1998/namespace"
DEEPEST = 256  # the deepest nesting, as in libxml2
_BLOCK = 1 << 16  # bytes of a stream
_NONE: dict[str, str] = {}
_ENCODING = re.compile(rb"""<\?xml[^>]{1,100}?encoding\s*=\s*["']([\w.:-]{1,40})["']""")
_ATTRIBUTE = re.compile(r"""(?<!\s)(\s+)([^\s=]+)(\s*=\s*)("[^"]*"|'[^']*')""")


class Token(NamedTuple):
    """content[start:stop] of a file.

    kind        start | end (of an element, both of `<a/>`, whose end is empty) | text | other
    name        of an element, in its name space: "{uri}name"
    text        its content
    line        where it begins, from 1
    """

    kind: str
    name: str
    attributes: dict[str, str]
    text: str
    line: int
    start: int
    stop: int = 0

    @property
    def local(self) -> str:
        """The name without its name space."""
        return self.name.rpartition("}")[2]


class Markup:
    """The tokens of an XML file.

    content  the file as text; encoding: of the file
    ends     for each start of an element the number of the token that ends it
    Raises DataError as `decode_xml`, and with name and line if it is not well-formed, declares entities or is nested
    too deeply, and if its outermost element is not `wanted`.
    """

    def __init__(self, content: bytes, name: str, wanted: str = "") -> None:
        self.content, self.encoding = decode_xml(content, name)
        self.name = name
        self.tokens = _placed(_Scanner(name, wanted).feed(self.content.encode(), True), self.content)
        self.ends: dict[int, int] = {}
        opened: list[int] = []
        for number, token in enumerate(self.tokens):
            if token.kind == "start":
                opened.append(number)
            elif token.kind == "end":
                self.ends[opened.pop()] = number

    @property
    def root(self) -> int:
        """The number of the token that starts the outermost element."""
        return next(iter(number for number, token in enumerate(self.tokens) if token.kind == "start"))

    def children(self, number: int) -> Iterator[int]:
        """The tokens directly inside an element; child elements by their start only."""
        place = number + 1
        while place < self.ends[number]:
            yield place
            place = self.ends.get(place, place) + 1

    def element(self, number: int) -> tuple[int, int]:
        """Where an element, or another token, begins and ends."""
        return self.tokens[number].start, self.tokens[self.ends.get(number, number)].stop

    def raw(self, number: int) -> str:
        """An element or another token as in the file."""
        return self.content[slice(*self.element(number))]

    def tag(self, number: int) -> str:
        """A single token as in the file."""
        token = self.tokens[number]
        return self.content[token.start : token.stop]

    def where(self, number: int) -> str:
        """File and line of a token."""
        return f"{self.name}:{self.tokens[number].line}"


class _Scanner:
    def __init__(self, name: str, wanted: str) -> None:
        self.name, self.wanted = name, wanted
        self.found: list[Token] = []
        self.depth = 0
        self.parser = parser = expat.ParserCreate("utf-8", "}")
        parser.buffer_text = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = lambda text: self._add("text", text=text)
        parser.DefaultHandler = lambda text: self._add("other")
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._skipped

    def feed(self, data: bytes, last: bool) -> list[Token]:
        """The tokens that end in the next part of a file, with their starts in bytes."""
        self.found = []
        try:
            self.parser.Parse(data, last)
        except expat.ExpatError as error:
            reason = brief(expat.ErrorString(error.code))
            raise DataError(f"{self.name}:{error.lineno}: malformed XML ({reason})") from None
        return self.found

    def _add(self, kind: str, name: str = "", attributes: dict[str, str] | None = None, text: str = "") -> None:
        line, start = self.parser.CurrentLineNumber, self.parser.CurrentByteIndex
        self.found.append(Token(kind, name, attributes or _NONE, text, line, start))

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise DataError(f"{self._where()}: more than {DEEPEST} nested elements: flatten it")
        if self.depth == 1 and self.wanted and name.rpartition("}")[2] != self.wanted:
            raise DataError(f"{self._where()}: <{brief(name.rpartition('}')[2])}>, wanted <{self.wanted}>")
        self._add("start", _named(name), {_named(key): value for key, value in attributes.items()})

    def _end(self, name: str) -> None:
        self.depth -= 1
        self._add("end", _named(name))

    def _entity(self, name: str, *_: object) -> None:
        raise DataError(
            f"{self.name}: declares the entity {shown(name)}: entities are not supported: replace it with its text"
        )

    def _skipped(self, name: str, *_: object) -> None:
        raise DataError(f"{self._where()}: the entity &{brief(name)}; is not defined in XML")

    def _where(self) -> str:
        return f"{self.name}:{self.parser.CurrentLineNumber}"


def _placed(found: list[Token], content: str) -> list[Token]:
    """The tokens of a whole file with their places in characters."""
    data = content.encode()
    tokens = []
    ends = [*(token.start for token in found[1:]), len(data)]
    begin = int(content.startswith("\ufeff"))  # in characters, while the parser counts bytes
    for token, end in zip(found, ends, strict=True):
        stop = begin + (end - token.start if len(data) == len(content) else len(data[token.start : end].decode()))
        tokens.append(Token(*token[:5], begin, stop))
        begin = stop
    return tokens


def _named(name: str) -> str:
    return f"{{{name}" if "}" in name else name


def decode_xml(content: bytes, name: str) -> tuple[str, str]:
    """The text of an XML file with its byte order mark and its encoding: from the mark or the declaration, else UTF-8.
    Raises DataError if the encoding is unknown, or if the file does not match it."""
    encoding = _encoding(content, name)
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise _undecodable(error, 1, name, encoding) from None


def stream_xml(stream: BinaryIO, name: str, wanted: str) -> Iterator[Token]:
    """The tokens of a file of any size, without their places. Raises DataError as `decode_xml` and `Markup`."""
    scanner, line = _Scanner(name, wanted), 1
    block = stream.read(_BLOCK)
    encoding = _encoding(block, name)
    decoder = codecs.getincrementaldecoder(encoding)()
    while True:
        try:
            text = decoder.decode(block, not block)
        except UnicodeDecodeError as error:
            raise _undecodable(error, line, name, encoding) from None
        yield from scanner.feed(text.encode(), not block)
        if not block:
            return
        line += text.count("\n")
        block = stream.read(_BLOCK)


def _encoding(begin: bytes, name: str) -> str:
    if begin.startswith((codecs.BOM_UTF16_LE, b"<\0")):
        return "utf-16-le"
    if begin.startswith((codecs.BOM_UTF16_BE, b"\0<")):
        return "utf-16-be"
    found = _ENCODING.match(begin)
    encoding = found[1].decode().lower() if found else "utf-8"
    try:
        if not CHARSETS.fullmatch(encoding):
            raise LookupError
        return codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"{name}: malformed XML (unknown encoding={shown(encoding)}): convert it to UTF-8") from None


def _undecodable(error: UnicodeDecodeError, line: int, name: str, encoding: str) -> DataError:
    line += error.object.count(b"\n", 0, error.start)
    return DataError(f"{name}:{line}: malformed XML (not {encoding.upper()}): convert it to UTF-8")


def with_attributes(tag: str, **attributes: str | None) -> str:
    """A start tag of the file with some attributes set; None removes them. "_" in their names stands for "-"."""
    given = {key.replace("_", "-"): value for key, value in attributes.items()}

    def put(found: re.Match[str]) -> str:
        if found[2] not in given:
            return found[0]
        value = given.pop(found[2])
        return "" if value is None else f'{found[1]}{found[2]}{found[3]}"{value}"'

    changed = _ATTRIBUTE.sub(put, tag)
    close = "/>" if changed.endswith("/>") else ">"
    new = "".join(f' {key}="{value}"' for key, value in given.items() if value is not None)
    return changed.removesuffix(close).rstrip() + new + close
