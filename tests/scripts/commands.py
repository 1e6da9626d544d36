"""A script in this process, as a user calls it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run_script(monkeypatch: Any, capsys: Any, name: str, *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("SCALEFORMER_ONE_LINE", "0")
    monkeypatch.setenv("COLUMNS", "100")
    path = str(SCRIPTS / name)
    monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
    code: object = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        code = error.code
    return int(str(code or 0)), *capsys.readouterr()


def error_line(result: tuple[int, str, str]) -> str:
    """The one line in which a command has said what is wrong."""
    code, out, err = result
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err
