"""The comparison that ends a soak; the soak itself runs by its command."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts import soak
from tests.processes import kill_steps


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs alike, but for the times of their rows."""
    for number, name in enumerate("ab"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        rows = f"step,train/loss,train/tokens_per_second\n1,2.5,{number}\n2,2.25,{number}\n"
        (tmp_path / name / "metrics.csv").write_text(rows, encoding="utf-8")
    content = {
        "state_dict": {"w": torch.arange(3.0)},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(2.0)}}}],
    }
    torch.save(content, tmp_path / "a" / "checkpoints" / "last.ckpt")
    shutil.copy(tmp_path / "a" / "checkpoints" / "last.ckpt", tmp_path / "b" / "checkpoints")
    return [tmp_path / "a", tmp_path / "b"]


def test_runs_alike_have_no_differences(runs: list[Path]) -> None:
    assert soak.differences(*runs) == []


def test_another_loss_a_missing_row_and_another_bit_are_named(runs: list[Path]) -> None:
    metrics = runs[1] / "metrics.csv"
    metrics.write_text(metrics.read_text(encoding="utf-8").replace("2.25", "2.26") + "3,1,1\n", encoding="utf-8")
    path = runs[1] / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    content["state_dict"]["w"][0] = 1e-30
    torch.save(content, path)
    found = soak.differences(*runs)
    assert found == ["metrics.csv at step 2", "metrics.csv: 2 and 3 rows", "last.ckpt: state_dict"]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([100.0, 150.0, 180.0, 100.0, 300.0] * 20, 0.0),
        ([100.0 + n for n in range(100)], 0.8),
        ([100.0] * 5, None),
    ],
    ids=["holes that come and go", "growing", "too short"],
)
def test_growth_after_the_warm_up(sizes: list[float], expected: float | None) -> None:
    memory = [(n * 10.0, 1.0) for n in range(61)] + [(601.0 + n, size) for n, size in enumerate(sizes)]
    grown = soak.growth(memory)
    assert grown is None if expected is None else grown == pytest.approx(expected, rel=0.01)


def test_memory_by_minute() -> None:
    assert soak.by_minute([(0.0, 5.0), (59.9, 3.04), (60.0, 4.0), (130.0, 2.0)]) == [
        (3.0, 5.0),
        (4.0, 4.0),
        (2.0, 2.0),
    ]


def test_kills_fall_between_checkpoints() -> None:
    for seed in range(20):
        steps = kill_steps(seed, 60, 7)
        assert steps == sorted(steps)
        assert all(step % 7 and step > 7 for step in steps)


def test_what_is_left_half_written_is_named(runs: list[Path]) -> None:
    (runs[1] / "checkpoints" / ".last.ckpt.7.tmp").touch()
    assert soak.differences(*runs) == ["b/checkpoints/.last.ckpt.7.tmp is left behind"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"differences": ["metrics.csv at step 2"]}, SystemExit),
        ({"memory_growth": 0.02}, SystemExit),
        ({"kills": {"SIGKILL": 1, "SIGTERM": 0}}, ValueError),
    ],
    ids=["alike", "another loss", "memory", "too few kills"],
)
def test_the_command_fails_where_something_is_not_as_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], error: type[BaseException] | None
) -> None:
    result = {"kills": {"SIGKILL": 1, "SIGTERM": 1}, "seconds": 9, "differences": [], "memory_growth": None, **changes}
    monkeypatch.setattr(soak, "soak", lambda *_: result)
    command = ["soak.py", "--folder", str(tmp_path / "soak"), "--steps", "9", "--rows", "2", "4", "--kills", "2"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(error) if error else nullcontext():
        soak.main()
    assert json.loads((tmp_path / "soak" / "soak.json").read_text(encoding="utf-8"))["kills"] == result["kills"]
