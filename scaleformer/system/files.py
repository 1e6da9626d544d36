"""Files that are written whole or not at all."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO


def check_folder(folder: str | Path) -> None:
    """Make a folder that can be written to, before the work whose results go there. Raises OSError."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def check_file(setting: str, name: str | None) -> None:
    """Raises ValueError where the one file that a setting names would lie in a folder that is not there, or is itself
    a folder: a mistyped path, before the work. None and "-" are no names of files."""
    if name in (None, "-"):
        return
    path = Path(str(name))
    if path.is_dir():
        raise ValueError(f"{setting}={name}: is a folder: wanted the name of a file, such as {path / 'FILE'}")
    if str(name).endswith(os.sep) or not path.parent.is_dir():
        folder = name if str(name).endswith(os.sep) else path.parent
        raise ValueError(f"{setting}={name}: there is no folder {folder}: correct the name of the file, or make it")


@contextmanager
def replaced(path: str | Path) -> Iterator[Path]:
    """The name of a temporary file beside `path`; what the block writes there takes the name `path` when it ends
    without an exception, else it is removed.

    Temporary files of it that killed processes have left are removed first. What is no plain file (a pipe, /dev/null)
    is written to as it is, a link stays a link. Raises OSError.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder, wanted the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.is_file() or not path.exists()
    target = path.resolve() if plain else path  # a link stays a link
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp") if plain else target
    if plain and os.name == "posix":  # elsewhere to ask for a process may end it
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
            error.filename = str(path)  # a full disk does not say where
        raise


def _clear(target: Path) -> None:
    """Remove the temporary files of `target` whose processes are gone."""
    begin = f".{target.name}."
    for entry in os.listdir(target.parent):
        process = entry.removeprefix(begin).removesuffix(".tmp")
        if entry == f"{begin}{process}.tmp" and process.isdecimal() and not _runs(int(process)):
            (target.parent / entry).unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return True
    return True


@contextmanager
def atomic_writer(path: str | Path) -> Iterator[TextIO]:
    """A UTF-8 text file, gzip for names in .gz, that takes its name when the block ends without an exception.

    The temporary file beside it is opened at once, so that a folder without write permission shows before the work.
    Otherwise as `replaced`. Raises OSError.
    """
    with replaced(path) as temporary, _open_text(temporary, compressed=Path(path).suffix == ".gz") as file:
        yield file


def _open_text(path: Path, compressed: bool) -> Any:
    if compressed:
        return gzip.open(path, "wt", encoding="utf-8", newline="\n")
    return open(path, "w", encoding="utf-8", newline="\n")
