"""What is wanted of every input: the right answer or a ValueError of one line, in time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scaleformer.text.documents import Document

LONGEST_MESSAGE = 1000


class Finding(Exception):
    """What is not as it should be."""


def answer(read: Callable[[], Any]) -> Any:
    """What `read` gives, None for a ValueError; raises Finding where its message is no clear line."""
    try:
        return read()
    except ValueError as error:
        message = str(error)
        if isinstance(error, UnicodeError) or not message.strip() or len(message.splitlines()) != 1:
            raise Finding(f"{type(error).__name__} is no single line: {message[:200]!r}") from error
        if len(message) > LONGEST_MESSAGE:
            raise Finding(f"a message of {len(message)} characters: {message[:200]!r}") from error
        return None


def same(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Finding(f"wanted {str(wanted)[:300]!r}, found {str(found)[:300]!r}")


def plain(documents: Any) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]] | None:
    return None if documents is None else [(d.id, d.source, d.target) for d in documents]


def checked(documents: list[Document] | None) -> None:
    for d in documents or []:
        if len(d.source) != len(d.target) or not d.source:
            raise Finding(f"document {d.id[:50]!r} with {len(d.source)} and {len(d.target)} segments")
        "".join((d.id, *d.source, *d.target)).encode()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise Finding when the block takes longer."""

    def late(*_: Any) -> None:
        raise Finding(f"took longer than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
