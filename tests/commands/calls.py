"""Runs commands in this process: as a user calls them, or from their settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from omegaconf import OmegaConf

from scaleformer.cli.command import CONF, config_of, module_of, options_of
from scaleformer.commands import main
from scaleformer.system.errors import one_line_errors


def default_options(name: str, **changes: Any) -> Any:
    """The default settings of a command without groups, with some of them changed."""
    content: Any = OmegaConf.load(CONF / f"{config_of(name)}.yaml")
    del content["defaults"]
    return options_of(module_of(name), OmegaConf.merge(content, changes))


class Benchmark:
    """A command without groups, called with its arguments: no process, no Hydra."""

    def __init__(self, name: str) -> None:
        self.name, self.module = name, module_of(name)

    def read(self, arguments: Sequence[str]) -> Any:
        """The settings of the arguments."""
        changes: Any = OmegaConf.to_container(OmegaConf.from_cli(list(arguments)))
        return default_options(self.name, **changes)

    def main(self, arguments: Sequence[str]) -> None:
        """Run it; wrong input ends in one line."""

        @one_line_errors()
        def command() -> None:
            self.module.main(self.read(arguments), list(arguments))

        command()


def run_command(monkeypatch: Any, capsys: Any, name: str, *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("SCALEFORMER_ONE_LINE", "0")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", ["scaleformer", name, *map(str, arguments)])
    code: object = 0
    try:
        main()
    except SystemExit as error:
        code = error.code
    return int(str(code or 0)), *capsys.readouterr()


def error_line(result: tuple[int, str, str]) -> str:
    """The one-line error of a command."""
    code, out, err = result
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def refusal(capsys: Any, call: Callable[[], object]) -> str:
    """The one-line error of a call from Python."""
    with pytest.raises(SystemExit) as ended, one_line_errors():
        call()
    return error_line((int(str(ended.value.code)), *capsys.readouterr()))


def error_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The one-line error of the program."""
    for name in ("HYDRA_FULL_ERROR", "SCALEFORMER_ONE_LINE", "SCALEFORMER_TRACEBACK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setattr(sys, "argv", ["scaleformer", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err.removeprefix("error: ").rstrip()
