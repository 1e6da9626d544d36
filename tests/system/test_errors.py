"""Errors in one line, and which settings count."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import Interrupted, describe, one_line_errors, run_command
from scaleformer.system.files import atomic_writer
from scaleformer.system.schema import check_types, listed
from scaleformer.translation.config import choose_decoding
from scaleformer.translation.search import DecodingConfig

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
        (ValueError("a\n  long   story"), 1, "error: a long story"),
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
        run_command(failing(error))
    assert exit.value.code == code
    assert capsys.readouterr().err == f"{line}\n"


def test_the_number_of_a_process_is_in_its_message(monkeypatch, capsys):
    for rank, line in (("1", "error in process 1: bad\n"), ("0", "error: bad\n")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        with pytest.raises(SystemExit):
            run_command(failing(ValueError("bad")))
        assert capsys.readouterr().err == line


def test_faults_of_the_program_keep_their_traceback():
    with pytest.raises(KeyError):
        run_command(failing(KeyError("bug")))


@pytest.mark.parametrize("name", ["SCALEFORMER_TRACEBACK", "HYDRA_FULL_ERROR"])
def test_the_traceback_on_demand(name, monkeypatch):
    monkeypatch.setenv(name, "1")
    with pytest.raises(ValueError, match="bad"):
        run_command(failing(ValueError("bad")))


def test_processes_started_by_a_command_print_one_line_too(capsys):
    def command() -> None:
        with one_line_errors():
            raise ValueError("in the child, with the environment of the parent")

    with pytest.raises(SystemExit):
        run_command(command)
    assert capsys.readouterr().err.startswith("error: in the child")


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


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("decoding.beam=5", "decoding.beam: no such setting; there are strategy, beam_size, length_penalty, "),
        ("beam=5", "beam: no such setting; there are decoding, checkpoint, input, "),
    ],
)
def test_a_misspelt_setting_is_told_its_neighbours(override, line):
    with initialize_config_dir(str(CONF), version_base="1.3"), pytest.raises(HydraException) as error:
        compose("translate", overrides=[override])
    said = describe(error.value)
    assert said.startswith(line)
    assert said.endswith("(another choice of decoding= may have others)") == ("." in override)


def test_settings_of_the_command_line_go_before_those_of_the_run():
    run = DecodingConfig(strategy="greedy", length_penalty=0.3)
    settings = asdict(DecodingConfig(beam_size=7))
    assert choose_decoding(run, settings, ["checkpoint=x", "output=decoding"]) == run
    with pytest.raises(ValueError, match=r"decoding\.beam_size=7: the strategy is greedy, which has no beam: set"):
        choose_decoding(run, settings, ["decoding.beam_size=7"])
    assert choose_decoding(run, settings, ["decoding.beam_size=7", "decoding.strategy=beam"]) == DecodingConfig(
        "beam", 7, 0.3
    )
    with pytest.raises(ValueError, match=r"decoding\.top_k=5: .* no sampling: set decoding\.strategy=sample too"):
        choose_decoding(run, asdict(DecodingConfig(top_k=5)), ["decoding.top_k=5"])
    alone = asdict(DecodingConfig(beam_size=1))
    assert choose_decoding(run, alone, ["decoding.beam_size=1"]) == DecodingConfig("greedy", 1, 0.3)
    assert choose_decoding(run, settings, ["decoding=beam", "decoding.beam_size=7"]) == DecodingConfig(beam_size=7)


def test_the_beam_configuration_is_the_default():
    assert yaml.safe_load((CONF / "decoding" / "beam.yaml").read_text(encoding="utf-8")) == asdict(DecodingConfig())


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("ten", int | None, "x='ten': wanted int | null"),
        (None, int, "x=None: wanted int"),
        (True, int, "x=True: wanted int"),
        (1, bool, "x=1: wanted bool"),
        (-1, (int, 0), "x=-1: wanted int of at least 0"),
        ("a", (float, 0), "x='a': wanted float of at least 0"),
        (["a"], str | None, r"x=\['a'\]: wanted str | null"),
    ],
)
def test_settings_of_commands_are_checked(value, kind, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        check_types(OmegaConf.create({"x": value}), x=kind)


def test_right_settings_of_commands():
    config = OmegaConf.create({"a": None, "b": 0, "c": 1, "d": "text"})
    check_types(config, a=(int | None, 1), b=(int, 0), c=float, d=str | None)


def test_one_thing_is_a_list_of_one():
    config = OmegaConf.create({"none": None, "one": "RUN", "many": ["a", "b"], "number": 3})
    assert [listed(value) for value in config.values()] == [[], ["RUN"], ["a", "b"], [3]]


def test_threads():
    before = torch.get_num_threads()
    set_up_cpu(None)
    assert torch.get_num_threads() == before
    set_up_cpu(before)
    for wrong in (0, "many", True):
        with pytest.raises(ValueError, match=f"threads={wrong}: wanted a whole number"):
            set_up_cpu(wrong)
