"""A script in this process: as a user calls it, or as a module."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "scripts"


def load(name: str) -> ModuleType:
    """The module of scripts/NAME.py."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names in their annotations
    spec.loader.exec_module(module)
    return module


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
