"""What the tests of the whole program share."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra._internal.hydra import Hydra

# Set before torch is imported, and for the processes that tests start: two workers on two cores want a thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if not Path("/dev/nvidia0").exists():  # kernels for GPUs are run by Triton's interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")

from scaleformer.report.curves import plot_learning_curves
from scaleformer.training import run as training
from tests.trainings import FAST, SMALL, Command

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def _without_what_takes_longest() -> Iterator[None]:
    """Trainings of a few steps would spend most of their time on their figure: only those with `curves` draw it. And
    Hydra would compose each configuration twice to know its mode, which `-m` says, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "plot_learning_curves", lambda _: None)
        patch.setattr(Hydra, "get_mode", lambda *_, **__: None)
        yield


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "plot_learning_curves", plot_learning_curves)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def command(monkeypatch, capsys, cache: Path) -> Command:
    """train.py in this process with a small configuration: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setenv("SCALEFORMER_ONE_LINE", "0")
        quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
        resumed = any(argument.startswith(("resume=/", "resume='", "--config-path")) for argument in arguments)
        small = [] if resumed else [*SMALL, *FAST, f"data.cache_dir={cache}"]
        monkeypatch.setattr(
            sys,
            "argv",
            [str(ROOT / "train.py"), *(arguments if resumed else ()), *small, *quiet, *(() if resumed else arguments)],
        )
        code: object = 0
        try:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as error:
            code = error.code
        return int(str(code or 0)), *capsys.readouterr()

    return run
