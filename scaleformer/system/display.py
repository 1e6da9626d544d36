"""What is shown to people: never worth the work that it is about."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class Display:
    """stdout or stderr for people: characters that it cannot show are replaced, and when it can no longer be written
    to, work goes on without it, which is said once on stderr.

    stream  what stands behind it, with its errors, for a command whose result goes there; None where it was closed
            before the program began
    """

    def __init__(self, stream: TextIO | None, name: str) -> None:
        self.stream, self.name = stream, name
        self._file: Any = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the program)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
        self.tells = name == "stdout"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """As of a file, without its errors."""
        try:
            return int(self._file.write(text))
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """As of a file, without its errors."""
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        with suppress(OSError):  # what is written or flushed from now on, at exit too, goes nowhere
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)
        if self.tells:
            self.tells = False
            print(f"warning: {self.name} cannot be written to ({error.strerror}): going on without", file=sys.stderr)


@contextmanager
def displayed() -> Iterator[None]:
    """sys.stdout and sys.stderr as `Display` for as long as the block takes.

    Streams that were closed get /dev/null in their place, lest the next file that is opened becomes stdout.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    before = sys.stdout, sys.stderr
    displays = Display(sys.stdout, "stdout"), Display(sys.stderr, "stderr")
    sys.stdout, sys.stderr = displays  # type: ignore[assignment]
    try:
        yield
    finally:
        for display in displays:
            display.flush()
        sys.stdout, sys.stderr = before


def result_stream() -> TextIO:
    """stdout for a result, which must not be lost: with its errors, and UTF-8 whatever the locale says, as files are.
    Raises ValueError where it is closed."""
    stream: TextIO | None = sys.stdout
    if isinstance(stream, Display):
        stream.tells = False  # what goes wrong is an error now
        stream = stream.stream
    if stream is None:
        raise ValueError("stdout is closed, and the result goes there: name a file")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return stream
