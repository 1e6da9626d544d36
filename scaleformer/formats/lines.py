"""Lines of text from files, pipes and stdin, compressed or not; the format is checked before reading.

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

from scaleformer.formats.recognition import FORMATS, by_content
from scaleformer.system.errors import DataError

LONGEST_LINE = 1 << 28  # bytes; sentencepiece's limit is a few times higher
_GZIP = b"\x1f\x8b"  # its first bytes [RFC 1952]
_AHEAD = 1 << 16  # bytes to recognise a format by
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# A compressed file that unpacks beyond both limits is not text: prose shrinks to a third or a tenth, gzip can reach a
# thousandth.
_UNPACKED = 1 << 27  # bytes
_RATIO = 200


class Input:
    """A file, a pipe, or stdin ("-"): its beginning and its lines.

    name   for messages
    begin  the first kilobytes of its unpacked content
    Input that can be read only once is kept in memory. Raises DataError: no such file, stdin closed.
    """

    def __init__(self, name: str) -> None:
        self.name = "stdin" if name == "-" else name
        self._content: bytes | None = None
        if name == "-":
            if sys.stdin is None:
                raise DataError("stdin is closed: redirect a file or pipe to it, or name an input file")
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
        """Like `read_lines`."""
        if self._content is None:
            return read_lines(self.name)
        return decode_lines(io.BytesIO(self._content), self.name)


def read_lines(path: str | Path, wanted: str = "") -> Iterator[tuple[int, str]]:
    """Numbered lines (from 1) of a UTF-8 text file, without their newlines; a byte order mark is dropped. A file is
    gzip if its name ends with .gz or its first bytes say so.

    Lines end at "\\n" or "\\r\\n"; at "\\r" in a file without other line ends. Raises DataError: no such file, not
    UTF-8, damaged or truncated .gz, not text, or not of the format `wanted` ("jsonl", "text", ...).
    """
    with _opened(path) as file:
        yield from decode_lines(file, str(path), wanted)


def decode_lines(stream: BinaryIO, name: str, wanted: str = "") -> Iterator[tuple[int, str]]:
    """`read_lines` for an open binary stream, such as `sys.stdin.buffer`; messages call it `name`.

    Raises DataError with the line for invalid UTF-8, a damaged gzip file, or an excessively long line.
    """
    number = 0
    begin, stream = _look_ahead(stream, name)
    _refuse_others(begin, name, wanted)
    try:
        # A few compressed kilobytes may unpack to a line larger than the memory.
        for number, line in enumerate(_split(stream, begin), 1):
            if len(line) > LONGEST_LINE:
                raise DataError(f"{name}:{number}: the line is longer than {LONGEST_LINE:,} bytes: split it")
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            if text or line != codecs.BOM_UTF8:  # else the file is only a byte order mark
                yield number, text.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} of the line"
        raise DataError(f"{name}:{number}: not UTF-8 ({place}): convert it to UTF-8") from None
    except EOFError:
        raise DataError(f"{name}:{number + 1}: the compressed file is truncated: download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}:{number + 1}: damaged gzip file ({error})") from None


@contextmanager
def opened(path: str | Path, wanted: str) -> Iterator[BinaryIO]:
    """The content of a file, unpacked if compressed, in any encoding.

    Raises DataError like `read_lines`: no such file, damaged .gz, not of the format `wanted`.
    """
    with _opened(path) as file:
        begin, stream = _look_ahead(file, str(path))
        if not begin.startswith(_UTF16):  # the caller's reader may accept UTF-16
            _refuse_others(begin, str(path), wanted)
        try:
            yield stream
        except EOFError:
            raise DataError(f"{path}: the compressed file is truncated: download it again") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: damaged gzip file ({error})") from None


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
    """The beginning of a stream's unpacked content, and a stream with all of it."""
    begin = stream.read(_AHEAD)  # waits for enough bytes, which a pipe may deliver one by one
    rewound = _Rewound(begin, stream)
    whole: Any = io.BufferedReader(rewound)
    if not begin.startswith(_GZIP) and not name.endswith(".gz"):
        return begin, whole
    with suppress(zlib.error):
        begin = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(begin, _AHEAD)  # of gzip
    unpacked: Any = io.BufferedReader(_Unpacked(gzip.GzipFile(fileobj=whole), rewound, name))
    return begin, unpacked


class _Rewound(io.RawIOBase):
    """A stream whose beginning was already read, from the start again; `count` bytes have been read from this one."""

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
    """The content of a compressed stream, up to a plausible size."""

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
            raise DataError(f"{self.name}: {packed} bytes unpack to more than {unpacked}: not a text file")
        return len(data)


def _refuse_others(begin: bytes, name: str, wanted: str) -> None:
    found = by_content(begin)
    if found is None or found.name in (wanted, "text") or not (found.binary or wanted):
        return
    if wanted == "text" and found.name in ("jsonl", "json"):  # the user may want to translate such lines
        return
    raise DataError(f"{name}: {found.title}, wanted {FORMATS[wanted].title if wanted else 'text'}")


def _split(stream: BinaryIO, begin: bytes) -> Iterable[bytes]:
    """Lines with their ends, cut at `LONGEST_LINE` + 1."""
    if b"\n" not in begin:
        begin = _first_line(stream)
        stream = io.BufferedReader(_Rewound(begin, stream))  # type: ignore[type-var]
    if b"\n" in begin or b"\r" not in begin:
        return iter(lambda: stream.readline(LONGEST_LINE + 1), b"")
    # line ends of old Macs; latin-1 preserves every byte
    lines = io.TextIOWrapper(stream, "latin-1", newline=None)
    return (line.encode("latin-1") for line in iter(lambda: lines.readline(LONGEST_LINE + 1), ""))


def _first_line(stream: BinaryIO) -> bytes:
    """The stream up to some kilobytes after its first line end, or to `LONGEST_LINE` without one."""
    blocks: list[bytes] = []
    while len(blocks) * _AHEAD <= LONGEST_LINE and (block := stream.read(_AHEAD)):
        blocks.append(block)
        if b"\n" in block or b"\r" in block:
            break
    return b"".join([*blocks, stream.read(_AHEAD)])
