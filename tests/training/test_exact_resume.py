"""Interrupted trainings resume as if they had not been interrupted."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from scaleformer.system.errors import Interrupted
from scaleformer.training import run as training
from tests.trainings import FAST, configure, read_metrics, weights


def test_a_killed_run_resumes_exactly(tmp_path: Path, cache: Path, monkeypatch) -> None:
    """In steps of two batches; `test_kills` has steps of one."""
    options = (*FAST, "model.dropout=0.1", "callbacks.ema.decay=0.5", "trainer.val_check_interval=2")
    options += ("trainer.accumulate_grad_batches=2",)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.run(configure(whole, cache, *options, "trainer.max_steps=9"))
    step = training.TranslationModule.training_step

    def killed(self, batch, index):
        if self.global_step == 5:
            raise KeyError("killed")
        return step(self, batch, index)

    monkeypatch.setattr(training.TranslationModule, "training_step", killed)
    with pytest.raises(KeyError, match="killed"):
        training.run(configure(parts, cache, *options, "trainer.max_steps=9"))
    assert weights(parts, "loops")["fit_loop"]["epoch_loop.batch_progress"]["total"]["processed"] == 3 * 2
    assert [row["step"] for row in read_metrics(parts)] == ["1", "2", "3", "4", "5"]
    monkeypatch.setattr(training.TranslationModule, "training_step", step)
    for steps in (7, 9):  # resumes from step 3, then from the end of the run
        training.run(configure(parts, cache, *options, f"trainer.max_steps={steps}", f"resume={parts}"))
    assert read_metrics(parts, *TIMES) == read_metrics(whole, *TIMES)
    for key in ("state_dict", "current_model_state"):
        expected = weights(whole, key)
        assert all(torch.equal(expected[name], tensor) for name, tensor in weights(parts, key).items())


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")
TIMES = ("train/tokens_per_second", "train/data_share")


@pytest.mark.parametrize("epochs", [None, 3], ids=["steps", "epochs"])
def test_a_run_killed_after_an_epoch_resumes_with_the_next(tmp_path: Path, cache: Path, monkeypatch, epochs) -> None:
    """An epoch of 6 batches has a step of four and one of two; what is saved after it must not resume inside it."""
    options = (*FAST[:2], "model.dropout=0.1", "callbacks.checkpoint.every_n_train_steps=2", "data.synthetic.train=24")
    options += ("trainer.accumulate_grad_batches=4", "trainer.val_check_interval=100")
    options += ("trainer.max_steps=6",) if epochs is None else ("trainer.max_steps=-1", "+trainer.max_epochs=3")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.run(configure(whole, cache, *options))
    step = training.TranslationModule.training_step
    for last in (3, 5):

        def killed(self, batch, index, last=last):
            if self.global_step == last:
                raise KeyError("killed")
            return step(self, batch, index)

        monkeypatch.setattr(training.TranslationModule, "training_step", killed)
        resumed = () if last == 3 else (f"resume={parts}",)
        with pytest.raises(KeyError, match="killed"):
            training.run(configure(parts, cache, *options, *resumed))
        assert weights(parts, "global_step") == last - 1
    monkeypatch.setattr(training.TranslationModule, "training_step", step)
    training.run(configure(parts, cache, *options, f"resume={parts}"))
    assert weights(parts, "global_step") == 6
    assert read_metrics(parts, *TIMES) == read_metrics(whole, *TIMES)
    expected = weights(whole)
    assert all(torch.equal(expected[name], tensor) for name, tensor in weights(parts).items())


def test_a_run_that_ended_with_a_validation_logs_after_a_resume(tmp_path: Path, cache: Path) -> None:
    options = (*FAST, "trainer.val_check_interval=4", "trainer.log_every_n_steps=2")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.run(configure(whole, cache, *options, "trainer.max_steps=8"))
    training.run(configure(parts, cache, *options, "trainer.max_steps=4"))
    training.run(configure(parts, cache, *options, "trainer.max_steps=8", f"resume={parts}"))
    rows = read_metrics(parts, *TIMES)
    assert [row["step"] for row in rows if row["train/loss"]] == ["2", "4", "6", "8"]
    assert rows == read_metrics(whole, *TIMES)


def test_a_new_total_changes_the_rate_of_the_next_step(tmp_path: Path, cache: Path) -> None:
    options = (*FAST, "schedule=cosine", "schedule.warmup_steps=1", "optimizer.learning_rate=0.01")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training.run(configure(whole, cache, *options, "trainer.max_steps=6"))
    training.run(configure(parts, cache, *options, "trainer.max_steps=3"))
    training.run(configure(parts, cache, *options, "trainer.max_steps=6", f"resume={parts}"))
    rates = [[row["train/learning_rate"] for row in read_metrics(run)] for run in (whole, parts)]
    assert len(rates[1]) == 6
    assert rates[1][3:] == rates[0][3:]


def test_status_gives_the_step_of_a_resume(tmp_path: Path, cache: Path, monkeypatch) -> None:
    said = []

    def killed(module, batch, index):
        said.append(json.loads((tmp_path / "status.json").read_text(encoding="utf-8")))
        raise KeyError("killed")

    options = (*FAST, f"resume={tmp_path}", "trainer.max_steps=4")
    training.run(configure(tmp_path, cache, *FAST, "trainer.max_steps=2"))
    monkeypatch.setattr(training.TranslationModule, "training_step", killed)
    with pytest.raises(KeyError, match="killed"):
        training.run(configure(tmp_path, cache, *options))
    monkeypatch.setattr(training.pl.Trainer, "fit", lambda *_, **__: killed(None, None, 0))
    with pytest.raises(KeyError, match="killed"):
        training.run(configure(tmp_path, cache, *options))
    assert [(status["state"], status["step"]) for status in said] == [("training", 2)] * 2
    status = json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))
    assert (status["state"], status["step"]) == ("failed", 2)


@pytest.mark.parametrize("where", ["training_step", "validation_step"])
def test_a_signal_after_the_last_step_is_not_lost(tmp_path: Path, cache: Path, monkeypatch, where: str) -> None:
    disturbed = getattr(training.TranslationModule, where)

    def told(module, batch, index):
        if module.global_step == 4 - (where == "training_step") and not module.stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return disturbed(module, batch, index)

    options = (*FAST, "trainer.max_steps=4", "trainer.val_check_interval=4", "test.enabled=true")
    monkeypatch.setattr(training.TranslationModule, where, told)
    with pytest.raises(Interrupted, match=f"interrupted by SIGTERM, saved at step 4: continue with resume={tmp_path}"):
        training.run(configure(tmp_path, cache, *options))
    assert weights(tmp_path, "global_step") == 4
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["state"] == "interrupted"
    assert not (tmp_path / "results" / "bleu-test.json").exists()
    monkeypatch.setattr(training.TranslationModule, where, disturbed)
    training.run(configure(tmp_path, cache, *options, f"resume={tmp_path}"))
    assert (tmp_path / "results" / "bleu-test.json").is_file()
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["state"] == "finished"


def test_status_follows_the_logged_steps_and_the_first_minute_is_kept(tmp_path: Path, cache: Path, monkeypatch) -> None:
    """A step takes 25 seconds: the first checkpoint comes with the step that begins after a minute."""
    now, said = [0.0], []
    step = training.TranslationModule.training_step

    def slow(module, batch, index):
        status = json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))
        saved = (tmp_path / "checkpoints" / "last.ckpt").is_file()
        said.append((status["step"], weights(tmp_path, "global_step") if saved else 0))
        now[0] += 25
        return step(module, batch, index)

    monkeypatch.setattr("scaleformer.training.saving.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(training.TranslationModule, "training_step", slow)
    options = ("trainer.max_steps=9", "callbacks.checkpoint.every_n_train_steps=500", "trainer.val_check_interval=99")
    training.run(configure(tmp_path, cache, *FAST, *options))
    assert said == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 4), (5, 4), (6, 4), (7, 4), (8, 4)]
    status = json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))
    assert (status["state"], status["step"]) == ("finished", 9)
