"""Files written completely or not at all."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO


def check_folder(folder: str | Path) -> None:
    """Create a folder and test that it is writable, before the work whose results go there. Raises OSError."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def check_file(setting: str, name: str | None) -> None:
    """Raise ValueError before the work if an output path looks mistyped: its folder does not exist, or it is a folder
    itself. None and "-" do not name files."""
    if name in (None, "-"):
        return
    path = Path(str(name))
    if path.is_dir():
        raise ValueError(f"{setting}={name}: is a folder: wanted a file name, such as {path / 'FILE'}")
    if str(name).endswith(os.sep) or not path.parent.is_dir():
        folder = name if str(name).endswith(os.sep) else path.parent
        raise ValueError(f"{setting}={name}: there is no folder {folder}: correct the path or create the folder")


@contextmanager
def replaced(path: str | Path) -> Iterator[Path]:
    """Yield the name of a temporary file next to `path`. When the block ends, the file is renamed to `path`; after an
    exception it is removed. Temporary files that killed processes left for `path` are removed first. Anything but a
    plain file (a pipe, /dev/null) is written to directly; a link stays a link. Raises OSError."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder: wanted a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.is_file() or not path.exists()
    target = path.resolve() if plain else path  # a link stays a link
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp") if plain else target
    if plain and os.name == "posix":  # on Windows os.kill(process, 0) would end the process
        with suppress(OSError):
            _clear(target)
    try:
        yield temporary
        if plain:
            os.replace(temporary, target)
    except BaseException as error:
        if plain:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # errors of a full disk name no file
        raise


def _clear(target: Path) -> None:
    """Remove temporary files for `target` whose processes no longer run."""
    begin = f".{target.name}."
    for entry in os.listdir(target.parent):
        process = entry.removeprefix(begin).removesuffix(".tmp")
        if entry == f"{begin}{process}.tmp" and process.isdecimal() and not _is_running(int(process)):
            (target.parent / entry).unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process, or not a process number
        return True
    return True


@contextmanager
def atomic_writer(path: str | Path) -> Iterator[TextIO]:
    """Write a UTF-8 text file (gzip for names in .gz) that appears only if the block ends without an exception.

    The temporary file is opened at once, so that missing write permission shows before the work. Otherwise like
    `replaced`. Raises OSError.
    """
    with replaced(path) as temporary, _open_text(temporary, compressed=Path(path).suffix == ".gz") as file:
        yield file


def _open_text(path: Path, compressed: bool) -> Any:
    if compressed:
        return gzip.open(path, "wt", encoding="utf-8", newline="\n")
    return open(path, "w", encoding="utf-8", newline="\n")
