"""Text by lines, from files, pipes and stdin, compressed or not; all of it looked at before it is read.

Every fault is a `DataError` of one line that starts with `file:line`.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from scaleformer.data.errors import DataError
from scaleformer.data.readers.formats import FORMATS, by_content

LONGEST_LINE = 1 << 28  # bytes; sentencepiece takes no more than a few times that
_GZIP = b"\x1f\x8b"  # how it begins [RFC 1952]
_AHEAD = 1 << 16  # bytes by which a format is recognised
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# A compressed file that grows beyond both is no text: prose shrinks to a third or a tenth, gzip can do a thousandth.
_UNPACKED = 1 << 27  # bytes
_RATIO = 200


class Input:
    """A file, a pipe, or stdin ("-"): what it begins with, and its lines.

    name   for messages
    begin  of its content, unpacked: some kilobytes
    Of what can be read only once all is kept. Raises DataError: no such file, stdin closed.
    """

    def __init__(self, name: str) -> None:
        self.name = "stdin" if name == "-" else name
        self._content: bytes | None = None
        if name == "-":
            if sys.stdin is None:
                raise DataError("stdin is closed: give it a file or a pipe, or name a file")
            self._content = sys.stdin.buffer.read()
        else:
            with _opened(name) as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    self.begin = _look_ahead(file, name)[0]
                else:
                    self._content = file.read()
        if self._content is not None:
            self.begin = _look_ahead(io.BytesIO(self._content), self.name)[0]

    def lines(self) -> Iterator[tuple[int, str]]:
        """As `read_lines`."""
        if self._content is None:
            return read_lines(self.name)
        return decode_lines(io.BytesIO(self._content), self.name)


def read_lines(path: str | Path, wanted: str = "") -> Iterator[tuple[int, str]]:
    """Numbered lines (from 1) of a UTF-8 text file, without their newline; a byte order mark is dropped. Compressed
    (gzip) by its name, .gz, or by what it begins with.

    Lines end at "\\n" ("\\r\\n" too); at "\\r" in a file that has no other line ends. Raises DataError: no such file,
    not UTF-8, damaged or truncated .gz, no text at all, another format than the one `wanted` ("jsonl", "text", ...).
    """
    with _opened(path) as file:
        yield from decode_lines(file, str(path), wanted)


def decode_lines(stream: BinaryIO, name: str, wanted: str = "") -> Iterator[tuple[int, str]]:
    """`read_lines` of an open binary stream, such as `sys.stdin.buffer`; `name` stands for it in messages.

    Raises DataError, with the line, for what is not UTF-8 or no sound gzip file, and for a line without end.
    """
    number = 0
    begin, stream = _look_ahead(stream, name)
    _refuse_others(begin, name, wanted)
    try:
        # A few kilobytes of a compressed file may hold a line that no memory does.
        for number, line in enumerate(_split(stream, begin), 1):
            if len(line) > LONGEST_LINE:
                raise DataError(f"{name}:{number}: the line is longer than {LONGEST_LINE:,} bytes: split it")
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            if text or line != codecs.BOM_UTF8:  # else the whole file is a byte order mark
                yield number, text.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} of the line"
        raise DataError(f"{name}:{number}: not UTF-8 ({place}): convert it to UTF-8") from None
    except EOFError:
        raise DataError(f"{name}:{number + 1}: the compressed file is cut short: fetch it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}:{number + 1}: not a sound gzip file ({error})") from None


@contextmanager
def opened(path: str | Path, wanted: str) -> Iterator[BinaryIO]:
    """The content of a file, unpacked where it is compressed, in any encoding.

    Raises DataError as `read_lines` does: no such file, damaged .gz, another format than the one `wanted`.
    """
    with _opened(path) as file:
        begin, stream = _look_ahead(file, str(path))
        if not begin.startswith(_UTF16):  # which a reader of another format may take
            _refuse_others(begin, str(path), wanted)
        try:
            yield stream
        except EOFError:
            raise DataError(f"{path}: the compressed file is cut short: fetch it again") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: not a sound gzip file ({error})") from None


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def _look_ahead(stream: BinaryIO, name: str) -> tuple[bytes, BinaryIO]:
    """What a stream, unpacked, begins with, and a stream that gives all of it."""
    begin = stream.read(_AHEAD)  # a pipe's first bytes may come one by one: this waits for more of them
    rewound = _Rewound(begin, stream)
    whole: Any = io.BufferedReader(rewound)
    if not begin.startswith(_GZIP) and not name.endswith(".gz"):
        return begin, whole
    with suppress(zlib.error):
        begin = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(begin, _AHEAD)  # of gzip
    unpacked: Any = io.BufferedReader(_Unpacked(gzip.GzipFile(fileobj=whole), rewound, name))
    return begin, unpacked


class _Rewound(io.RawIOBase):
    """A stream whose beginning was read already, from its beginning; `count` bytes of it have been given."""

    def __init__(self, begin: bytes, rest: BinaryIO) -> None:
        self.begin, self.rest, self.count = memoryview(begin), rest, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.begin[: len(buffer)] or self.rest.read(len(buffer))
        self.begin = self.begin[len(data) :]
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class _Unpacked(io.RawIOBase):
    """What a compressed stream holds, as long as it is not absurdly much."""

    def __init__(self, content: gzip.GzipFile, packed: _Rewound, name: str) -> None:
        self.content, self.packed, self.name, self.count = content, packed, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.content.read1(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        if self.count > max(_UNPACKED, _RATIO * self.packed.count):
            packed, unpacked = f"{self.packed.count:,}", f"{self.count:,}"
            raise DataError(f"{self.name}: {packed} bytes unpack to more than {unpacked}: not a file of text")
        return len(data)


def _refuse_others(begin: bytes, name: str, wanted: str) -> None:
    found = by_content(begin)
    if found is None or found.name in (wanted, "text") or not (found.binary or wanted):
        return
    if wanted == "text" and found.name in ("jsonl", "json"):  # such lines may be what is to be translated
        return
    raise DataError(f"{name}: {found.title}, wanted {FORMATS[wanted].title if wanted else 'text'}")


def _split(stream: BinaryIO, begin: bytes) -> Iterable[bytes]:
    """Lines with their ends, cut at `LONGEST_LINE` + 1."""
    if b"\n" not in begin:
        begin = _first_line(stream)
        stream = io.BufferedReader(_Rewound(begin, stream))  # type: ignore[type-var]
    if b"\n" in begin or b"\r" not in begin:
        return iter(lambda: stream.readline(LONGEST_LINE + 1), b"")
    # the line ends of old Macs; latin-1 gives every byte back
    lines = io.TextIOWrapper(stream, "latin-1", newline=None)
    return (line.encode("latin-1") for line in iter(lambda: lines.readline(LONGEST_LINE + 1), ""))


def _first_line(stream: BinaryIO) -> bytes:
    """A stream to its first line end and some kilobytes on, or all of it; to `LONGEST_LINE` where there is none."""
    blocks: list[bytes] = []
    while len(blocks) * _AHEAD <= LONGEST_LINE and (block := stream.read(_AHEAD)):
        blocks.append(block)
        if b"\n" in block or b"\r" in block:
            break
    return b"".join([*blocks, stream.read(_AHEAD)])
