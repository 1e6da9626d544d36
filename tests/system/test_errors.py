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
        (MemoryError(), 1, "error: out of memory (no more to be had): take smaller batches or pieces"),
        (
            torch.OutOfMemoryError("CUDA out of"),
            1,
            "error: out of memory (CUDA out of): take smaller batches or pieces",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
            1,
            "error: out of memory (DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.): "
            "take smaller batches or pieces",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted("interrupted by SIGTERM: go on"), 75, "interrupted by SIGTERM: go on"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_one_line_and_an_exit_code(error, code, line, capsys):
    with pytest.raises(SystemExit) as exit:
        one_line_errors()(failing(error))()
    assert exit.value.code == code
    assert capsys.readouterr().err == f"{line}\n"


def test_the_number_of_a_process_is_in_its_message(monkeypatch, capsys):
    for rank, line in (("1", "error in process 1: bad\n"), ("0", "error: bad\n")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        with pytest.raises(SystemExit):
            one_line_errors()(failing(ValueError("bad")))()
        assert capsys.readouterr().err == line


def test_faults_of_the_program_keep_their_traceback():
    with pytest.raises(KeyError):
        one_line_errors()(failing(KeyError("bug")))()


@pytest.mark.parametrize("name", ["SCALEFORMER_TRACEBACK", "HYDRA_FULL_ERROR"])
def test_the_traceback_on_demand(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    with pytest.raises(ValueError, match="bad"):
        one_line_errors()(failing(ValueError("bad")))()


@pytest.mark.parametrize("name", ["SCALEFORMER_TRACEBACK", "HYDRA_FULL_ERROR"])
def test_an_orderly_end_is_none_of_these(name, monkeypatch, capsys):
    monkeypatch.setenv(name, "1")
    for error, code in ((Interrupted("saved: go on"), 75), (KeyboardInterrupt(), 130)):
        with pytest.raises(SystemExit) as exit:
            one_line_errors()(failing(error))()
        assert exit.value.code == code
    with pytest.raises(SystemExit) as exit, one_line_errors():
        os.kill(os.getpid(), signal.SIGTERM)
    assert exit.value.code == 143
    assert capsys.readouterr().err == "saved: go on\ninterrupted\n"


def test_a_decorator(capsys):
    @one_line_errors()
    def command() -> None:
        raise ValueError("bad")

    for _ in range(2):
        with pytest.raises(SystemExit):
            command()
    assert capsys.readouterr().err == "error: bad\n" * 2


def test_the_signal_to_end_leaves_no_half_written_file(tmp_path):
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


def test_handlers_that_are_there_stay():
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with one_line_errors():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


def test_errors_of_the_configuration_are_cut_to_their_first_line():
    with pytest.raises(OmegaConfBaseException) as error:
        _ = OmegaConf.create({"checkpoint": "???"}).checkpoint
    assert describe(error.value) == "Missing mandatory value: checkpoint"
