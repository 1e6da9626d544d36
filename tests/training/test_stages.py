"""Runs in stages: killed in each, they end as if they had not been; what they say, and what they refuse."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

from scaleformer.training import run as training
from tests.processes import Training, assert_same, finish
from tests.trainings import FAST, configure, read_metrics, weights

STAGES = "data.stages=[{level: segment, until: 0.5, max_tokens: 200}, {level: document, multi_resolution: true}]"
OPTIONS = (
    *FAST,
    STAGES,
    "model.dropout=0.1",
    "callbacks.ema.decay=0.5",
    "trainer.max_steps=8",
    "trainer.val_check_interval=2",
    "callbacks.checkpoint.every_n_train_steps=1",
)
TIMES = ("train/tokens_per_second", "train/data_share")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


@pytest.mark.parametrize(
    "more", [(), ("trainer.accumulate_grad_batches=4", "data.synthetic.train=24")], ids=["one batch", "four batches"]
)
def test_a_run_killed_in_each_stage_resumes_exactly(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
) -> None:
    whole, parts, options = tmp_path / "whole", tmp_path / "parts", (*OPTIONS, *more)
    training.run(configure(whole, cache, *options))
    said = capsys.readouterr().out
    assert "stage 1, to step 4: level=segment, max_tokens=200\nstage 2, to the end: level=document" in said
    assert "steps so far" in said
    step, resume = training.TranslationModule.training_step, ()
    for last in (2, 4, 6):  # inside the first, between the two, inside the second

        def killed(self, batch, index, last=last):
            if self.global_step == last:
                raise KeyError("killed")
            return step(self, batch, index)

        monkeypatch.setattr(training.TranslationModule, "training_step", killed)
        with pytest.raises(KeyError, match="killed"):
            training.run(configure(parts, cache, *options, *resume))
        assert weights(parts, "global_step") == last
        resume = (f"resume={parts}",)
    monkeypatch.setattr(training.TranslationModule, "training_step", step)
    training.run(configure(parts, cache, *options, *resume))
    rows = read_metrics(whole, *TIMES)
    assert read_metrics(parts, *TIMES) == rows
    validated = {int(row["step"]): bool(row["val/stage_loss"]) for row in rows if row["val/loss"]}
    assert more or validated == {2: True, 4: False, 6: False, 8: False}  # the second cuts as validation does
    expected = weights(whole)
    assert all(torch.equal(expected[name], tensor) for name, tensor in weights(parts).items())
    counts = [json.loads((run / "results" / "data.json").read_text())["corpora"] for run in (whole, parts)]
    assert counts[0] == counts[1]
    assert {name: corpus["steps"] for name, corpus in counts[0].items()} == {"stage 1": 4, "stage 2": 4}


def test_two_processes_killed_between_two_stages_resume_exactly(tmp_path: Path, cache: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = (*OPTIONS, "trainer.max_steps=6", "data.stages=[{level: segment, until: 3}, {multi_resolution: true}]")
    finish(whole, cache, *options, world=2)
    training = Training(parts, cache, *options, world=2, kills={1: (3, signal.SIGKILL)})
    assert training.wait()[1] == -signal.SIGKILL, training.output
    finish(parts, cache, *options, f"resume={parts}", world=2)
    assert_same(whole, parts)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("trainer.max_steps=-1", "+trainer.max_epochs=2"),
            "is a share of trainer.max_steps or trainer.max_time, and n",
        ),
        (
            ("data.stages=[{until: 0.5}, {until: 0.5}, {}]",),
            r"until is 0\.5, 0\.5, with .*: a stage would have no step",
        ),
        (
            ("data.stages=[{until: 3}, {until: 3}, {}]",),
            "until is 3, 3, with trainer.max_steps=8: a stage would have no",
        ),
        (("data.stages=[{until: 8}, {}]",), "until is 8, with trainer.max_steps=8: a stage would have no step"),
    ],
)
def test_stages_without_a_step_or_an_end_are_refused(
    tmp_path: Path, cache: Path, options: tuple[str, ...], line: str
) -> None:
    with pytest.raises(ValueError, match=line):
        training.run(configure(tmp_path, cache, *OPTIONS, *options))
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize(("most", "until", "steps"), [(1, 0.4, [0, 1]), (2, 0.8, [2, 0])])
def test_a_run_may_be_shorter_than_its_stages(
    tmp_path: Path, cache: Path, most: int, until: float, steps: list[int]
) -> None:
    stages = f"data.stages=[{{level: segment, until: {until}}}, {{}}]"
    training.run(configure(tmp_path, cache, *OPTIONS, f"trainer.max_steps={most}", stages))
    corpora = json.loads((tmp_path / "results" / "data.json").read_text())["corpora"]
    assert [corpora.get(f"stage {n}", {}).get("steps", 0) for n in (1, 2)] == steps


def test_shares_of_the_time(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a hundredth with each batch that is handed out."""
    now = iter(range(1000))
    monkeypatch.setattr("scaleformer.data.stages.share_of_time", lambda trainer: next(now) / 100)
    limits = ("trainer.max_steps=-1", "trainer.max_time=00:00:01:00", "+trainer.max_epochs=2")
    training.run(configure(tmp_path, cache, *OPTIONS, *limits, "data.stages=[{level: segment, until: 0.05}, {}]"))
    corpora = json.loads((tmp_path / "results" / "data.json").read_text())["corpora"]
    assert corpora["stage 1"]["steps"] == 4  # asked once at the start, and once before the first batch
    assert corpora["stage 2"]["epochs"] == 1


def test_a_cosine_by_the_clock(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the time goes by with each update: the rate of the last of four is (1 + cos(0.75 pi)) / 2."""
    monkeypatch.setattr("scaleformer.training.optimization.share_of_time", lambda trainer: trainer.global_step / 4)
    limits = ("trainer.max_steps=-1", "trainer.max_time=00:00:01:00", "+trainer.max_epochs=1")
    schedule = ("schedule=cosine", "schedule.warmup_steps=1", "optimizer.learning_rate=1.0")
    parts = configure(tmp_path, cache, *OPTIONS, *limits, *schedule, "trainer.log_every_n_steps=1")
    training.run(parts)
    rates = [float(row["train/learning_rate"]) for row in read_metrics(tmp_path) if row["train/learning_rate"]]
    assert rates[:4] == pytest.approx([1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5])
