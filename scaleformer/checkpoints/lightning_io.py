"""Writes Lightning's checkpoints whole or not at all, and reads them without running foreign code."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor

from scaleformer.checkpoints.package import read_checkpoint
from scaleformer.system.errors import Interrupted

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
STATES = ("state_dict", "current_model_state")  # the second beside an average of the weights


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes next to the target, syncs, then renames; the former last.ckpt stays as previous.ckpt.

    Lightning (2.6) writes to the system's temporary folder and moves the file from there. Across file systems that
    copies over the last good checkpoint, which a full disk cuts short. It also silently ignores a PermissionError.

    kept  weights that checkpoints leave out, since another file has them: those of the parent of adapters
    """

    kept: Mapping[str, Tensor] = {}

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Raises OSError with the path if writing fails, Interrupted at a signal; an old file then stays unchanged."""
        path = Path(path)
        for key in checkpoint.keys() & STATES if self.kept else ():
            own = {name: tensor for name, tensor in checkpoint[key].items() if name not in self.kept}
            checkpoint = {**checkpoint, key: own}
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
            if isinstance(error.__context__, Interrupted):  # torch's writer fails again while it handles a signal
                raise error.__context__ from None
            # On a full disk torch's writer fails again while it handles the OSError: report that first error.
            first = error.__context__ if isinstance(error.__context__, OSError) else error
            number = getattr(first, "errno", None) or errno.EIO
            reason = getattr(first, "strerror", None) or str(first)
            raise OSError(number, f"the checkpoint cannot be written ({reason}); {_left(path)}", str(path)) from error
        finally:
            with suppress(OSError):
                temporary.unlink()

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As `model_file.read_checkpoint`: `weights_only`, and ValueError unless scaleformer wrote the checkpoint."""
        content = read_checkpoint(Path(path))
        return content | {key: {**self.kept, **content[key]} for key in content.keys() & STATES}


def _keep(path: Path, name: Path) -> None:
    """Give a file a second name while the first one stays valid at every moment."""
    link = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    try:
        os.link(path, link)
    except OSError:  # a file system without links: for a moment only the second name exists
        os.replace(path, name)
        return
    try:
        os.replace(link, name)
    finally:
        with suppress(OSError):
            link.unlink()


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that new names are on disk too; some file systems cannot do this."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _left(path: Path) -> str:
    if not path.is_file() and not (path.parent.name == "checkpoints" and list(path.parent.glob("*.ckpt"))):
        return "there is no earlier one"
    resume = f", then continue with resume={path.parent.parent}" if path.parent.name == "checkpoints" else ""
    return f"the previous one is intact: free disk space{resume}"
