"""Sweeps: all jobs run, and failed ones are listed at the end."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from scaleformer.cli.sweep import Job, Jobs
from tests.trainings import Command, read_metrics

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


def test_a_failing_job_does_not_end_a_sweep(tmp_path: Path, command: Command) -> None:
    options = ("trainer.max_steps=1", "trainer.val_check_interval=1", f"hydra.sweep.dir={tmp_path / 'all of it'}")
    code, out, err = command("data.max_tokens=64,1,128", "-m", *options)
    assert code == 1
    assert (
        err.splitlines()[-1]
        == "job 1 failed (data.max_tokens=1): data.max_tokens is 1: it must be an int of at least 3"
    )
    assert [path.name for path in sorted((tmp_path / "all of it").glob("*/"))] == ["0", "2"]
    with (tmp_path / "all of it" / "sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["job"], row["data.max_tokens"], row["folder"]) for row in rows] == [
        ("0", "64", "0"), ("1", "1", "1"), ("2", "128", "2"),
    ]  # fmt: skip
    assert [row["error"] for row in rows] == ["", "data.max_tokens is 1: it must be an int of at least 3", ""]
    assert rows[1]["val/loss"] == ""
    for number, tokens in ((0, 64), (2, 128)):
        run = tmp_path / "all of it" / str(number)
        assert json.loads((run / "status.json").read_text(encoding="utf-8"))["state"] == "finished"
        loss = float(read_metrics(run)[-1]["val/loss"])
        row = next(line for line in out.splitlines() if f"data.max_tokens={tokens}" in line)
        assert f"{loss:.4f}" in row
        assert float(rows[number]["val/loss"]) == pytest.approx(loss, rel=1e-4)
        assert "hydra" not in row
    before = (tmp_path / "all of it" / "sweep.csv").read_bytes()
    code, out, err = command("data.max_tokens=64,128", "-m", *options)
    assert code == 1
    assert f"hydra.sweep.dir={tmp_path / 'all of it'}: holds a sweep, whose table would be lost: name another" in err
    assert (tmp_path / "all of it" / "sweep.csv").read_bytes() == before


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_first_process_alone_writes_the_table(tmp_path: Path, monkeypatch, capsys, rank: str) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    jobs = Jobs()
    with jobs:
        jobs.jobs.append(Job(0, ("seed=1",), str(tmp_path / "0"), 1.5 if rank == "0" else None))
    assert (tmp_path / "sweep.csv").exists() == ("1.5000" in capsys.readouterr().out) == (rank == "0")


def test_commas_separate_the_names_of_a_sweep(tmp_path: Path, command: Command) -> None:
    code, out, err = command("-m", "data=jsonl", "data.path=2024_1,a b", f"hydra.sweep.dir={tmp_path}")
    assert code == 1
    failed = [line for line in err.splitlines() if line.startswith("job ")]
    assert [line.partition(": ")[2] for line in failed] == [
        "2024_1: no such file or folder (data.path)",
        "a b: no such file or folder (data.path)",
    ]
    assert out.count("failed") == 2
    assert list(tmp_path.glob("*/")) == []
