"""Several processes train like one, and fail together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import Training, finish
from tests.trainings import read_metrics

OPTIONS = (
    "model.dropout=0",
    "trainer.log_every_n_steps=1",
    "trainer.max_steps=6",
    "callbacks.checkpoint.every_n_train_steps=100",
    "data.synthetic.train=20",  # an epoch of an odd number of batches, within these steps
    "callbacks.validation_bleu.examples=8",
)


@pytest.mark.parametrize("valid", [5, 1], ids=["validation", "fewer documents than processes"])
def test_two_processes_train_as_one_with_twice_the_batches(tmp_path: Path, cache: Path, valid: int) -> None:
    one, two, options = tmp_path / "one", tmp_path / "two", (*OPTIONS, f"data.synthetic.valid={valid}")
    finish(one, cache, *options, "trainer.accumulate_grad_batches=2", "trainer.val_check_interval=4")
    finish(two, cache, *options, "trainer.val_check_interval=2", world=2)
    rows, others = read_metrics(one), read_metrics(two)
    assert [row["step"] for row in rows] == [row["step"] for row in others] == ["1", "2", "3", "4", "5", "6"]
    for row, other in zip(rows, others, strict=True):
        for name in ("train/loss", "train/gradient_norm", "train/learning_rate"):
            assert float(other[name]) == pytest.approx(float(row[name]), rel=1e-5), (name, row["step"])
    for name in ("val/loss", "val/bleu"):  # later ones fall on different steps: the last step of an epoch is smaller
        assert float(others[1][name]) == pytest.approx(float(rows[1][name]), rel=1e-5), name
    assert all(0 <= float(row["train/idle_share"]) < 1 for row in others)


def test_a_process_that_fails_takes_the_others_down(tmp_path: Path, cache: Path) -> None:
    training = Training(tmp_path / "run", cache, *OPTIONS, world=2, fails={1: 2})
    assert training.wait() == [1, 1]
    lines = [line for line in training.output.splitlines() if line.startswith("error")]
    assert "error in process 1: out of memory after step 2 on a batch of" in "\n".join(lines)
    assert any("error: another process of this run has ended" in line for line in lines)
    assert "Traceback" not in training.output
