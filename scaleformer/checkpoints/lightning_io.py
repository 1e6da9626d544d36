"""How Lightning's checkpoints get to disk and back: whole or not at all, and without running anybody's code."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from scaleformer.checkpoints.model_file import read_checkpoint

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, syncs, then renames; the last.ckpt before stays as previous.ckpt.

    Lightning's own way (2.6) writes to the system's temporary folder and moves the file from there: on another file
    system that is a copy over the last good checkpoint, which a full disk cuts short. It also drops a
    PermissionError without a word.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Raises OSError with the path where it cannot be written; a file of that name is then as it was."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            if path.name == LAST and path.is_file():
                _keep(path, path.with_name(PREVIOUS))
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except (OSError, RuntimeError) as error:
            # Where a disk is full torch's own writer stumbles over what is missing: the reason came before.
            first = error.__context__ if isinstance(error.__context__, OSError) else error
            number = getattr(first, "errno", None) or errno.EIO
            reason = getattr(first, "strerror", None) or str(first)
            raise OSError(number, f"the checkpoint cannot be written ({reason}); {_left(path)}", str(path)) from error
        finally:
            with suppress(OSError):
                temporary.unlink()

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As `model_file.read_checkpoint`: by `weights_only`; ValueError for what is none of ours."""
        return read_checkpoint(Path(path))


def _keep(path: Path, name: Path) -> None:
    """Give a file a second name, so that at every moment the first one is there too."""
    link = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    try:
        os.link(path, link)
    except OSError:  # a file system without links: for a moment there is the second name alone
        os.replace(path, name)
        return
    try:
        os.replace(link, name)
    finally:
        with suppress(OSError):
            link.unlink()


def _sync_folder(folder: Path) -> None:
    """Names are on disk too; some file systems cannot tell."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _left(path: Path) -> str:
    if not path.is_file():
        return "there was none before it"
    resume = f", then go on by resume={path.parent.parent}" if path.parent.name == "checkpoints" else ""
    return f"the one before it is intact: make room{resume}"
