"""Trainings that are killed, told to stop, or lose one of their processes: nothing is lost, and nothing hangs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

from tests.processes import Training, assert_same, finish, kill_steps

OPTIONS = (
    "model.dropout=0.1",
    "data.multi_resolution=true",
    "callbacks.ema.decay=0.5",
    "callbacks.validation_bleu.examples=0",
    "trainer.log_every_n_steps=1",
    "callbacks.checkpoint.every_n_train_steps=7",
    "trainer.val_check_interval=14",  # at some checkpoints
)


@pytest.mark.parametrize(("world", "steps"), [(1, 36), (2, 24)], ids=["alone", "two processes"])
def test_killed_three_times_it_ends_where_it_would_have(tmp_path: Path, cache: Path, world: int, steps: int) -> None:
    whole, parts, options = tmp_path / "whole", tmp_path / "parts", (*OPTIONS, f"trainer.max_steps={steps}")
    finish(whole, cache, *options, world=world)
    resume: tuple[str, ...] = ()
    for number, step in enumerate(kill_steps(5, steps, 7)):
        victim = number % world
        training = Training(parts, cache, *options, *resume, world=world, kills={victim: (step, signal.SIGKILL)})
        codes = training.wait()
        assert codes[victim] == -signal.SIGKILL, training.output
        assert all(code == 1 for rank, code in enumerate(codes) if rank != victim), training.output
        assert world == 1 or "another process of this run has ended" in training.output
        resume = (f"resume={parts}",)
    finish(parts, cache, *options, *resume, world=world)
    assert_same(whole, parts)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[int, Path]:
    """Runs of six steps that were left alone, by the number of their processes."""
    folders = {world: tmp_path_factory.mktemp(f"whole{world}") for world in (1, 2)}
    for world, folder in folders.items():
        finish(folder, cache, *OPTIONS, "trainer.max_steps=6", world=world)
    return folders


def test_a_signal_in_the_last_step_is_not_lost(tmp_path: Path, cache: Path) -> None:
    options, kills = (*OPTIONS, "trainer.max_steps=6"), {1: (5, signal.SIGTERM)}
    training = Training(tmp_path, cache, *options, world=2, kills=kills, launcher="torchrun")
    assert training.wait() == [75, 75], training.output
    assert f"interrupted by SIGTERM, saved at step 6: go on by resume={tmp_path}" in training.output
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "interrupted"


@pytest.mark.parametrize(
    ("name", "world", "launcher"),
    [
        ("SIGTERM", 1, "lightning"),
        ("SIGINT", 1, "lightning"),
        ("SIGUSR1", 2, "lightning"),
        ("SIGTERM", 2, "torchrun"),
        ("SIGUSR1", 2, "slurm"),
    ],
    ids=lambda value: str(value),
)
def test_a_signal_saves_and_says_that_the_run_can_go_on(
    undisturbed: dict[int, Path], tmp_path: Path, cache: Path, name: str, world: int, launcher: str
) -> None:
    options = (*OPTIONS, "trainer.max_steps=6")
    last = world - 1  # one process is told, all stop
    kills = {last: (3, signal.Signals[name])}
    training = Training(tmp_path, cache, *options, world=world, kills=kills, launcher=launcher)
    # the process that has started the others takes their codes for its own affair
    assert training.wait() == [75, *[0 if launcher == "lightning" else 75] * last], training.output
    assert f"interrupted by {name}, saved at step 4: go on by resume={tmp_path}" in training.output
    assert "Traceback" not in training.output
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "interrupted"
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 4
    finish(tmp_path, cache, *options, f"resume={tmp_path}", world=world, launcher=launcher)
    assert_same(undisturbed[world], tmp_path)
