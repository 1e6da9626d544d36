"""The benchmark of attention: what it measures, prints and writes. What the times are is no matter here."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from scaleformer.ops._benchmark import alternate, peak_memory

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark_attention.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_attention", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names in their annotations
    spec.loader.exec_module(module)
    return module


def test_functions_take_turns() -> None:
    calls: list[str] = []
    functions = {name: (lambda name=name: calls.append(name)) for name in "ab"}
    times = alternate(functions, torch.device("cpu"), repeats=3, seconds=0.0)
    assert calls == ["a", "b"] * 4  # one to warm up
    assert times.keys() == {"a", "b"}
    assert all(seconds >= 0 for seconds in times.values())


def test_peak_memory_counts_what_lives_at_one_time() -> None:
    def function() -> torch.Tensor:
        first = torch.zeros(1000) + torch.zeros(1000)  # three vectors at one time
        return first.sum()

    assert 3 * 4000 <= peak_memory(function, torch.device("cpu")) < 4 * 4000


def test_the_command(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "lengths=[8,40] heads=2 width=4 horizon=2 segments=[3] repeats=1 seconds=0 paper_limit=8"
    script.main([*sizes.split(), f"output={tmp_path}"])
    result = json.loads((tmp_path / "attention.json").read_text())
    assert result["settings"]["lengths"] == [8, 40]
    assert {"command", "versions", "device", "seed", "slopes"} <= result.keys()
    systems = [row["system"] for row in result["rows"] if row["length"] == 40 and row["passes"] == "forward"]
    assert systems == 2 * [script.SOFTMAX, "scaleformer", "all scores", "segment-gated, 3 tokens each"]
    assert len(result["rows"]) == 2 * 2 * (5 + 4)
    for row in result["rows"]:
        assert row["memory"] > 0
        assert row["system"] != script.SOFTMAX or row["ratio"] == 1
    assert (tmp_path / "attention.png").stat().st_size > 10_000
    assert "bidirectional, forward+backward" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("colour=red", "colour"),
        ("lengths=[]", "lengths is []: give at least one"),
        ("repeats=many", "repeats"),
        ("dtype=wide", "dtype is 'wide': give the name of a torch type"),
    ],
)
def test_wrong_options(script: ModuleType, argument: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.main([argument])
    assert message in capsys.readouterr().err
