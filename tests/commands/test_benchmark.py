"""`scaleformer benchmark` hands its settings over to the programs of scripts/."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from scaleformer.commands import benchmark
from scaleformer.commands import main as command


def test_settings_become_options(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: called.append((name, sys.argv[1:])))
    monkeypatch.setattr(sys, "argv", ["scaleformer"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    given = "lengths=[128,512] sizes.layers=4 memory=false systems=[softmax] memory_limit=1.5 --repeats 3"
    command(["benchmark", "training", *given.split()])
    words = "--lengths 128 512 --layers 4 --no-memory --systems softmax --memory-limit 1.5 --repeats 3"
    assert called == [("scripts.bench_training", words.split())]


def test_all_kinds_are_there() -> None:
    for kind in benchmark.KINDS:
        path = benchmark.ROOT / "scripts" / f"bench_{kind}"
        assert path.is_dir() or path.with_suffix(".py").is_file()


def test_what_cannot_be_timed_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["benchmark"], ["benchmark", "nothing"]):
        with pytest.raises(SystemExit, match="1"):
            command(words)
        assert capsys.readouterr().err.endswith("wanted attention, training, decoding or gpu\n")
    command(["benchmark", "--help"])
    assert "scaleformer benchmark attention|training|decoding|gpu" in capsys.readouterr().out
    monkeypatch.setattr(benchmark, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="1"):
        command(["benchmark", "training"])
    assert "scripts/ of a clone" in capsys.readouterr().err
