"""Faults of a corpus beside those of a file: a split that is missing, a cache that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scaleformer.system.errors import DataError


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
