"""Trainings that are killed, signalled, or lose a process: nothing is lost, and nothing hangs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scaleformer.translation import resumable
from tests.processes import Training, assert_same, finish, kill_steps

OPTIONS = (
    "model.dropout=0.1",
    "data.multi_resolution=true",
    "callbacks.ema.decay=0.5",
    "callbacks.validation_bleu.examples=0",
    "trainer.log_every_n_steps=1",
    "callbacks.checkpoint.every_n_train_steps=7",
    "trainer.val_check_interval=14",  # coincides with some checkpoints
)


@pytest.mark.parametrize(("world", "steps"), [(1, 36), (2, 24)], ids=["alone", "two processes"])
def test_a_run_killed_three_times_ends_as_usual(tmp_path: Path, cache: Path, world: int, steps: int) -> None:
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
    """Undisturbed runs of six steps, by number of processes."""
    folders = {world: tmp_path_factory.mktemp(f"whole{world}") for world in (1, 2)}
    for world, folder in folders.items():
        finish(folder, cache, *OPTIONS, "trainer.max_steps=6", world=world)
    return folders


def test_a_signal_in_the_last_step_is_not_lost(tmp_path: Path, cache: Path) -> None:
    options, kills = (*OPTIONS, "trainer.max_steps=6"), {1: (5, signal.SIGTERM)}
    training = Training(tmp_path, cache, *options, world=2, kills=kills, launcher="torchrun")
    assert training.wait() == [75, 75], training.output
    assert f"interrupted by SIGTERM, saved at step 6: continue with resume={tmp_path}" in training.output
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
def test_a_signal_saves_and_says_how_to_resume(
    undisturbed: dict[int, Path], tmp_path: Path, cache: Path, name: str, world: int, launcher: str
) -> None:
    options = (*OPTIONS, "trainer.max_steps=6")
    last = world - 1  # one process gets the signal, all stop
    kills = {last: (3, signal.Signals[name])}
    training = Training(tmp_path, cache, *options, world=world, kills=kills, launcher=launcher)
    # the launching process does not pass on the codes of the others
    assert training.wait() == [75, *[0 if launcher == "lightning" else 75] * last], training.output
    assert f"interrupted by {name}, saved at step 4: continue with resume={tmp_path}" in training.output
    assert "Traceback" not in training.output
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "interrupted"
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 4
    finish(tmp_path, cache, *options, f"resume={tmp_path}", world=world, launcher=launcher)
    assert_same(undisturbed[world], tmp_path)


def test_a_signal_ends_a_wait_for_another_machine(tmp_path: Path, cache: Path, monkeypatch) -> None:
    monkeypatch.setattr("scaleformer.training.interruption.PATIENCE", 0.5)
    training = Training(tmp_path, cache, *OPTIONS, world=2, launcher="torchrun")
    first, second = training.processes
    second.kill()
    status = tmp_path / "status.json"
    until = time.monotonic() + 60
    while not status.exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(2)  # by now it is waiting
    os.kill(first.pid, signal.SIGTERM)  # type: ignore[arg-type]
    first.join(20)
    assert first.exitcode == 75, training.output
    assert json.loads(status.read_text())["state"] == "interrupted"
    training.wait()


def test_a_run_killed_while_evaluating_keeps_its_translations(tmp_path: Path, cache: Path, monkeypatch) -> None:
    """Finished documents are not translated again, however the process ended."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = (*OPTIONS, "trainer.max_steps=4", "test.enabled=true", "test.ter=false", "decoding.batch_tokens=1")
    options += ("data.synthetic.test=6",)
    finish(whole, cache, *options)
    keep = resumable._write

    def disturbed(number: signal.Signals) -> Callable[[Any, dict[str, Any]], None]:
        def write(file: Any, record: dict[str, Any]) -> None:
            keep(file, record)
            if file.tell() and "hypotheses" in record:
                count[0] += 1
                if count[0] == 2:
                    os.kill(os.getpid(), number)

        count = [0]
        return write

    resume: tuple[str, ...] = ()
    for number, code, state in ((signal.SIGKILL, -9, "evaluating"), (signal.SIGTERM, 75, "interrupted")):
        monkeypatch.setattr(resumable, "_write", disturbed(number))
        training = Training(killed, cache, *options, *resume)
        assert training.wait() == [code], training.output
        said = json.loads((killed / "status.json").read_text())
        assert (said["state"], said["step"]) == (state, 4)
        resume = (f"resume={killed}",)
    assert f"interrupted by SIGTERM: continue with resume={killed}" in training.output
    monkeypatch.setattr(resumable, "_write", keep)
    training = Training(killed, cache, *options, *resume)
    assert training.wait() == [0], training.output
    assert "resuming: 4 of 6 documents" in training.output
    results = [json.loads((run / "results" / "bleu-test.json").read_text()) for run in (whole, killed)]
    assert results[0]["scores"] == results[1]["scores"]
    assert results[0]["translation_seconds"] > 0
    assert results[1]["translation_seconds"] is None
    translated = [(run / "results" / "bleu-test.jsonl").read_text() for run in (whole, killed)]
    assert translated[0] == translated[1]
    assert not list((killed / "results").glob(".*"))
