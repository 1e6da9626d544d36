"""The one exception that bad input data raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(ValueError):
    """Unusable input data: one line with the file, the line number if there is one, and what to fix."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names of files and documents may contain line breaks


class MissingSplit(DataError):
    """The split does not exist or has no documents."""


@contextmanager
def cache_errors(folder: str | Path) -> Iterator[None]:
    """Turn failed writes below `folder` (no permission, a full disk) into DataError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{folder}: cannot write the cache ({reason}): set data.cache_dir") from error
