"""Output for people: a failure to show it never stops the work."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TextIO

_PLURAL = re.compile(r"(?<=[a-z])s\b")


def ranged(first: int, last: int | None) -> str:
    """A range of numbers: "3", "3-4" or "3 and more"."""
    return f"{first} and more" if last is None else str(first) if first == last else f"{first}-{last}"


def counted(number: int, noun: str) -> str:
    """ "1 segment", "1,200 segments"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def counted_as(number: int, what: str) -> str:
    """What was counted, said in the plural, with its number: "1 segment left", "2 segments left"."""
    return f"{number:,} {what if number != 1 else _PLURAL.sub('', what, count=1)}"


class Display:
    """stdout or stderr for people. Characters that it cannot encode are replaced. If writing fails, the work continues
    without it, after one warning on stderr.

    stream  the stream behind it, which still raises errors, for a command that writes its result there; None if it was
            closed when the program started
    """

    def __init__(self, stream: TextIO | None, name: str) -> None:
        self.stream, self.name = stream, name
        self._file: Any = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the program ends)
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
        self.tells = name == "stdout"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """As for a file, but never raises OSError."""
        try:
            return int(self._file.write(text))
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """As for a file, but never raises OSError."""
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        with suppress(OSError):  # discard all later writes and flushes, also those at exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)
        if self.tells:
            self.tells = False
            print(f"warning: cannot write to {self.name} ({error.strerror}): continuing without it", file=sys.stderr)


@contextmanager
def displayed() -> Iterator[None]:
    """Make sys.stdout and sys.stderr a `Display` within the block.

    Closed streams are replaced by /dev/null; otherwise the next opened file would become stdout.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor
    before = sys.stdout, sys.stderr
    displays = Display(sys.stdout, "stdout"), Display(sys.stderr, "stderr")
    sys.stdout, sys.stderr = displays  # type: ignore[assignment]
    try:
        yield
    finally:
        for display in displays:
            display.flush()
        sys.stdout, sys.stderr = before


def show_page(text: str) -> None:
    """Print a text whose reader may stop reading (`| head`): then nothing is wrong."""
    with nullcontext() if isinstance(sys.stdout, Display) else displayed():
        sys.stdout.tells = False  # type: ignore[union-attr]
        print(text, flush=True)


def result_stream() -> TextIO:
    """stdout for a result, which must not be lost: it raises errors, and writes UTF-8 whatever the locale, like files.
    Raises ValueError if it is closed."""
    stream: TextIO | None = sys.stdout
    if isinstance(stream, Display):
        stream.tells = False  # a failure is an error now, so do not warn as well
        stream = stream.stream
    if stream is None:
        raise ValueError("stdout is closed, but the result goes there: name an output file")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return stream
