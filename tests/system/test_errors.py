"""Errors in one line, and exit codes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from scaleformer.system.errors import Interrupted, describe, one_line_errors
from scaleformer.system.files import atomic_writer

CONF = Path(__file__).parents[2] / "conf"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("SCALEFORMER_TRACEBACK", "SCALEFORMER_ONE_LINE", "HYDRA_FULL_ERROR"):
        monkeypatch.setenv(name, "0")


def failing(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("a\n  long\n\n story of  a name"), 1, "error: a long story of  a name"),
        (FileNotFoundError(2, "No such file", "x.txt"), 1, "error: x.txt: No such file"),
        (OSError("just words"), 1, "error: just words"),
        (MemoryError(), 1, "error: out of memory (allocation failed): use smaller batches or pieces"),
        (
            torch.OutOfMemoryError("CUDA out of"),
            1,
            "error: out of memory (CUDA out of): use smaller batches or pieces",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
            1,
            "error: out of memory (DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.): "
            "use smaller batches or pieces",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted("interrupted by SIGTERM: continue"), 75, "interrupted by SIGTERM: continue"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_one_line_and_an_exit_code(error, code, line, capsys):
    with pytest.raises(SystemExit) as exit:
        one_line_errors()(failing(error))()
    assert exit.value.code == code
    assert capsys.readouterr().err == f"{line}\n"


def test_messages_name_the_process(monkeypatch, capsys):
    for rank, line in (("1", "error in process 1: bad\n"), ("0", "error: bad\n")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        with pytest.raises(SystemExit):
            one_line_errors()(failing(ValueError("bad")))()
        assert capsys.readouterr().err == line


def test_bugs_keep_their_traceback():
    with pytest.raises(KeyError):
        one_line_errors()(failing(KeyError("bug")))()


@pytest.mark.parametrize("name", ["SCALEFORMER_TRACEBACK", "HYDRA_FULL_ERROR"])
def test_the_traceback_on_demand(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    with pytest.raises(ValueError, match="bad"):
        one_line_errors()(failing(ValueError("bad")))()


@pytest.mark.parametrize("name", ["SCALEFORMER_TRACEBACK", "HYDRA_FULL_ERROR"])
def test_interruptions_print_no_traceback(name, monkeypatch, capsys):
    monkeypatch.setenv(name, "1")
    for error, code in ((Interrupted("saved: continue"), 75), (KeyboardInterrupt(), 130)):
        with pytest.raises(SystemExit) as exit:
            one_line_errors()(failing(error))()
        assert exit.value.code == code
    with pytest.raises(SystemExit) as exit, one_line_errors():
        os.kill(os.getpid(), signal.SIGTERM)
    assert exit.value.code == 143
    assert capsys.readouterr().err == "saved: continue\ninterrupted\n"


def test_a_decorator(capsys):
    @one_line_errors()
    def command() -> None:
        raise ValueError("bad")

    for _ in range(2):
        with pytest.raises(SystemExit):
            command()
    assert capsys.readouterr().err == "error: bad\n" * 2


def test_sigterm_leaves_no_partial_file(tmp_path):
    @one_line_errors()
    def command() -> None:
        with atomic_writer(tmp_path / "out.txt") as file:
            file.write("half of it")
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as exit:
        command()
    assert exit.value.code == 143
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_existing_signal_handlers_stay():
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with one_line_errors():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


def test_configuration_errors_are_cut_to_their_first_line():
    with pytest.raises(OmegaConfBaseException) as error:
        _ = OmegaConf.create({"checkpoint": "???"}).checkpoint
    assert describe(error.value) == "Missing mandatory value: checkpoint"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGHUP"])
def test_signals_before_a_training_begins_end_in_75(name, monkeypatch, capfd):
    number = getattr(signal, name)
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as exit, one_line_errors(resumable=True):
            os.kill(os.getpid(), number)
        assert exit.value.code == 75
        assert capfd.readouterr().err == f"interrupted by {name} before the training began\n"
    finally:
        signal.signal(number, before)
