"""The record of a run, and the lock of its folder."""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import subprocess
from pathlib import Path

import pytest
import torch

from scaleformer.training.run_folder import (
    claimed,
    git_revision,
    is_claimed,
    is_finished,
    write_environment,
    write_status,
)


def test_every_start_is_recorded(tmp_path: Path) -> None:
    for _ in range(2):
        write_environment(tmp_path, torch.device("cpu"), 2, {"seed": 3}, {"train": "abc"})
    starts = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))["starts"]
    assert len(starts) == 2
    start = starts[1]
    assert start["packages"]["torch"] == importlib.metadata.version("torch")
    assert start["seeds"] == {"seed": 3}
    assert start["data"] == {"train": "abc"}
    assert start["machine"]["processes"] == 2
    assert start["machine"]["cores"] >= 1
    assert {"time", "command", "folder", "git", "python"} <= set(start)


def test_a_broken_record_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{", encoding="utf-8")
    write_environment(tmp_path, torch.device("cpu"), 1, {}, {})
    assert len(json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))["starts"]) == 1


def test_the_revision_of_a_working_tree(tmp_path: Path) -> None:
    assert git_revision(tmp_path) is None

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "first")
    assert git_revision(tmp_path) == {"commit": git("rev-parse", "HEAD"), "changed": False}
    (tmp_path / "file").write_text("2")
    assert git_revision(tmp_path) == {"commit": git("rev-parse", "HEAD"), "changed": True}


@pytest.mark.parametrize(("state", "finished"), [("training", False), ("failed", False), ("finished", True)])
def test_status(tmp_path: Path, state: str, finished: bool) -> None:
    assert not is_finished(tmp_path)
    write_status(tmp_path, state, 7)
    assert is_finished(tmp_path) == finished
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["step"] == 7


def elsewhere(folder: Path, answers) -> None:
    answers.put(is_claimed(folder))
    try:
        with claimed(folder):
            answers.put("claimed")
    except ValueError as error:
        answers.put(str(error))


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def ask() -> list[object]:
        process = context.Process(target=elsewhere, args=(tmp_path / "run", answers))
        process.start()
        process.join()
        return [answers.get(timeout=10), answers.get(timeout=10)]

    assert not is_claimed(tmp_path / "run")
    with claimed(tmp_path / "run"):
        taken, message = ask()
        assert taken is True
        assert "another training is using this folder" in str(message)
    assert ask() == [False, "claimed"]


def test_half_written_files_of_a_killed_training_are_removed(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("checkpoints/last.ckpt", "metrics.csv", "results/.test.json.7.tmp", ".lock")]
    gone = [tmp_path / name for name in ("checkpoints/.last.ckpt.7.tmp", ".metrics.csv.7.tmp", ".status.json.7.tmp")]
    for path in (*kept, *gone):  # an evaluation may be writing to results/
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with claimed(tmp_path):
        assert [path for path in (*kept, *gone) if path.exists()] == kept
