"""Lines of text from files, pipes and stdin, compressed or not; the format is checked before reading.

Every fault is a `DataError` of one line that starts with `file:line`.
"""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from scaleformer.formats.recognition import FORMATS, by_content
from scaleformer.system.errors import DataError

LONGEST_LINE = 1 << 28  # bytes; sentencepiece's limit is a few times higher
_GZIP = b"\x1f\x8b"  # its first bytes [RFC 1952]
LARGEST = 1 << 28  # bytes of a document, packed or not, and of all its parts: more than any real one
_AHEAD = 1 << 16  # bytes to recognise a format by
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# A compressed file that unpacks beyond both limits is not text: prose shrinks to a third or a tenth, gzip can reach a
# thousandth.
_UNPACKED = 1 << 27  # bytes
_RATIO = 200


class Input:
    """A file, a pipe, or stdin ("-"): its beginning and its lines.

    name    for messages
    begin   the first kilobytes of its unpacked content
    packed  whether it is compressed
    Input that can be read only once is kept in memory, like the content that a caller gives. Raises DataError: no such
    file, stdin closed.
    """

    def __init__(self, name: str, content: bytes | None = None) -> None:
        self.name = "stdin" if name == "-" else name
        self._content = content
        if name == "-" and content is None:
            if sys.stdin is None:
                raise DataError("stdin is closed: redirect a file or pipe to it, or name an input file")
            self._content = sys.stdin.buffer.read()
        with nullcontext(io.BytesIO(self._content)) if self._content is not None else _opened(name) as file:
            if isinstance(file, io.BytesIO):
                self._content = file.getvalue()
            self.begin, stream = _unpacked(file, self.name)
            self.packed = stream is not file

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
    """`read_lines` for an open binary stream at its start, which can be read again; messages call it `name`. Raises
    DataError with the line for invalid UTF-8, a damaged gzip file, or an excessively long line."""
    number = 0
    begin, stream = _unpacked(stream, name)
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
    """The content of a file, unpacked if compressed, in any encoding. Raises DataError like `read_lines`: no such file,
    damaged .gz, not of the format `wanted`."""
    with _opened(path) as file:
        begin, stream = _unpacked(file, str(path))
        if not begin.startswith(_UTF16):  # the caller's reader may accept UTF-16
            _refuse_others(begin, str(path), wanted)
        try:
            yield stream
        except EOFError:
            raise DataError(f"{path}: the compressed file is truncated: download it again") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: damaged gzip file ({error})") from None


def read_content(path: Path) -> bytes:
    """The content of a document. Raises DataError if it cannot be read, is larger than `LARGEST` or is compressed."""
    with _opened(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise DataError(f"{path}: more than {LARGEST:,} bytes: split it")
    if content.startswith(_GZIP):
        raise DataError(f"{path}: is compressed: unpack it first")
    return content


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    """A file; a pipe in memory, since all input is read twice."""
    try:
        with open(path, "rb") as file:
            yield file if file.seekable() else io.BytesIO(file.read())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def _unpacked(file: BinaryIO, name: str) -> tuple[bytes, BinaryIO]:
    """The beginning of a file's unpacked content, and a stream of all of it."""
    begin = file.read(_AHEAD)
    file.seek(0)
    if not begin.startswith(_GZIP) and not name.endswith(".gz"):
        return begin, file
    with suppress(zlib.error):
        begin = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(begin, _AHEAD)  # of gzip
    unpacked: Any = io.BufferedReader(_Unpacked(file, name))
    return begin, unpacked


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, up to a plausible size."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.content = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        return self.content.seek(place, whence)

    def readinto(self, buffer: Any) -> int:
        data = self.content.read1(len(buffer))
        buffer[: len(data)] = data
        if self.content.tell() > max(_UNPACKED, _RATIO * self.file.tell()):
            packed, unpacked = f"{self.file.tell():,}", f"{self.content.tell():,}"
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
    if b"\n" not in begin:  # look at what surrounds the first line end
        for _ in range(0, LONGEST_LINE + 1, _AHEAD):
            begin = stream.read(_AHEAD)
            if not begin or b"\n" in begin or b"\r" in begin:
                break
        begin += stream.read(_AHEAD)
        stream.seek(0)
    if b"\n" in begin or b"\r" not in begin:
        return iter(lambda: stream.readline(LONGEST_LINE + 1), b"")
    # line ends of old Macs; latin-1 preserves every byte
    lines = io.TextIOWrapper(stream, "latin-1", newline=None)
    return (line.encode("latin-1") for line in iter(lambda: lines.readline(LONGEST_LINE + 1), ""))
