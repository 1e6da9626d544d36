"""Checkpoints on disk: the old one stays until the new one is whole."""

from __future__ import annotations

import errno
import os
import re
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import torch

from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.system.errors import Interrupted
from tests.runs import EMPTY

CONTENT = {"scaleformer": EMPTY, "state_dict": {"model.weight": torch.arange(1000.0)}}


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints" / "last.ckpt"


def test_save_and_load(path: Path) -> None:
    io = SafeCheckpointIO()
    io.save_checkpoint(CONTENT, path)
    torch.testing.assert_close(io.load_checkpoint(path)["state_dict"], CONTENT["state_dict"])
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("where", ["os.fsync", "torch.save", "os.replace"])
def test_a_full_disk_keeps_the_previous_checkpoint(path: Path, monkeypatch, where: str) -> None:
    io = SafeCheckpointIO()
    io.save_checkpoint(CONTENT, path)
    before = path.read_bytes()
    monkeypatch.setattr(where, full)
    with pytest.raises(OSError, match=r"No space left.*intact: free disk space, then continue with resume=") as error:
        io.save_checkpoint({**CONTENT, "more": 1}, path)
    assert error.value.filename == str(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_another_checkpoint_of_the_run_is_left(path: Path, monkeypatch) -> None:
    SafeCheckpointIO().save_checkpoint(CONTENT, path)
    monkeypatch.setattr("torch.save", full)
    with pytest.raises(OSError, match=rf"intact: .*continue with resume={re.escape(str(path.parent.parent))}"):
        SafeCheckpointIO().save_checkpoint(CONTENT, path.with_name("best.ckpt"))


def test_a_full_device(path: Path, monkeypatch) -> None:
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a: real(Path("/dev/full") if ".tmp" in self.name else self, *a))
    with pytest.raises(OSError, match=r"No space left on device\); there is no earlier one"):
        SafeCheckpointIO().save_checkpoint(CONTENT, path)
    assert list(path.parent.iterdir()) == []


def test_the_original_reason_is_reported_not_the_writers(path: Path, monkeypatch) -> None:
    def broken(*_: object) -> None:
        try:
            full()
        finally:
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match=r"cannot be written \(No space left on device\)") as error:
        SafeCheckpointIO().save_checkpoint(CONTENT, path)
    assert error.value.errno == errno.ENOSPC


def test_a_signal_amid_writing_is_no_failure_to_write(path: Path, monkeypatch) -> None:
    """A second SIGTERM, which ends the run at once: torch's writer fails over the file that it left."""
    io, writes = SafeCheckpointIO(), []

    class Interrupting(FileIO):
        def write(self, data: Any) -> int:
            writes.append(len(data))
            if len(writes) == 3:
                raise Interrupted("interrupted by SIGTERM at once")
            return super().write(data)

    io.save_checkpoint(CONTENT, path)
    before, real = path.read_bytes(), Path.open

    def opened(self: Path, *a: Any, **b: Any) -> Any:
        return Interrupting(self, "w") if ".tmp" in self.name else real(self, *a, **b)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(Interrupted, match="at once"):
        io.save_checkpoint(CONTENT, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_outside_a_run_the_error_suggests_no_resume(tmp_path: Path, monkeypatch) -> None:
    SafeCheckpointIO().save_checkpoint(CONTENT, tmp_path / "mean.ckpt")
    monkeypatch.setattr("torch.save", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        SafeCheckpointIO().save_checkpoint(CONTENT, tmp_path / "mean.ckpt")
    assert error.value.strerror.endswith("; the previous one is intact: free disk space")


def test_a_writer_error_without_errno(path: Path, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match=r"cannot be written.*PytorchStreamWriter") as error:
        SafeCheckpointIO().save_checkpoint(CONTENT, path)
    assert error.value.errno == errno.EIO


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(OSError, match=r"cannot be written .*there is no earlier one"):
        SafeCheckpointIO().save_checkpoint(CONTENT, tmp_path / "checkpoints" / "last.ckpt")


def test_a_truncated_checkpoint_is_named(path: Path) -> None:
    SafeCheckpointIO().save_checkpoint(CONTENT, path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"last\.ckpt: not a readable checkpoint"):
        SafeCheckpointIO().load_checkpoint(path)
