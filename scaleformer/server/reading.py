"""Prose of requests, read and written where that can be ended: in a process of its own with little memory.

This module and what it imports work without torch, so that such a process starts in a fraction of a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from scaleformer.formats.files import known_pairs, read_prose, write_prose
from scaleformer.formats.segments import Kept

T = TypeVar("T")
Read = tuple[tuple[str, ...], tuple[Kept, ...], tuple[tuple[str, str], ...]]
MEMORY = 2 << 30  # bytes of a process


@dataclass(frozen=True)
class Prose:
    """A text or file with prose; see `read_prose`. size: the bytes to read, unpacked."""

    content: bytes
    name: str
    format: str
    language: str
    grain: str
    size: int
    target: str = ""

    def read(self) -> Read:
        """Its segments, what their placeholders stand for, and its `known_pairs`. Raises DataError."""
        file, found = read_prose(*self._what)
        segments = [segment for some in found for segment in some]
        texts, kept = tuple(segment.text for segment in segments), tuple(segment.kept for segment in segments)
        return texts, kept, known_pairs(file, self.name)

    def write(self, texts: Sequence[str]) -> tuple[bytes, Counter[str]]:
        """The content with its segments translated, and counts of what could not be translated or placed."""
        counts: Counter[str] = Counter()
        file, found = read_prose(*self._what)
        known_pairs(file, self.name)  # counts what does not help the others
        return write_prose(file, found, texts, counts), counts

    @property
    def _what(self) -> tuple[bytes, str, str, str, str, str]:
        return self.content, self.name, self.format, self.language, self.grain, self.target


def read_all(proses: Sequence[Prose]) -> list[Read]:
    """`Prose.read` of each."""
    return [prose.read() for prose in proses]


def limited(call: Callable[[], T]) -> T:
    """Call in a process whose memory is limited from now on. Raises MemoryError."""
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return call()
