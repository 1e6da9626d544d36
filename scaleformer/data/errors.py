"""The one exception that bad input data raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(ValueError):
    """Input data that cannot be used: one line with the file, the line number where there is one, and what to mend."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names of files and documents may have line breaks


class MissingSplit(DataError):
    """There is no such split, or nothing of it can be had."""


@contextmanager
def cache_errors(folder: str | Path) -> Iterator[None]:
    """Failed writes below `folder` as DataError: no permission, a full disk."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{folder}: cannot write the cache ({reason}): set data.cache_dir") from error
