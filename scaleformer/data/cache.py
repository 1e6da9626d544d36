"""What is kept in `data.cache_dir`: made by one process while others wait, and made again where it is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from scaleformer.system.errors import DataError

T = TypeVar("T")


@contextmanager
def cache_errors(folder: str | Path) -> Iterator[None]:
    """Turn failed writes below `folder` (no permission, a full disk) into DataError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{folder}: cannot write the cache ({reason}): set data.cache_dir") from error


def made_once(path: Path, read: Callable[[], T], make: Callable[[], object]) -> T:
    """What `read` finds in CACHE/KIND/NAME (`path`), which `make` writes where it is missing or damaged.

    read raises OSError, EOFError or ValueError where it finds nothing good. Raises DataError if the cache cannot be
    written, and like `make`.
    """
    damaged = OSError, EOFError, ValueError
    with suppress(*damaged):
        return read()
    with cache_errors(path.parent):
        locks = path.parents[1] / "locks"
        for needed in (path.parent, locks):
            needed.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{path.name}.lock"):
            with suppress(*damaged):
                return read()
            make()
    return read()
