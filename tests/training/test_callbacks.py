"""The callbacks take effect: averaging, random states, translations, early stopping, checkpoints."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import Callback, Timer

from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.metrics import Metrics
from scaleformer.training import saving
from scaleformer.training.callbacks import RandomState, ValidationBleu, WeightAverage, build_callbacks
from scaleformer.training.interruption import SignalWatch
from scaleformer.training.settings import (
    CallbacksConfig,
    CheckpointConfig,
    EarlyStoppingConfig,
    EmaConfig,
    ValidationBleuConfig,
)
from tests.trainings import Batches, Words, make_module, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


class Weights(Callback):
    """The weights after each step."""

    def __init__(self) -> None:
        self.after: list[torch.Tensor] = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.after.append(flat(pl_module.state_dict()))


def flat(state: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([state[name].flatten() for name in sorted(state)]).clone()


def saved(path: Path, key: str = "state_dict") -> Any:
    return torch.load(path, weights_only=True)[key]


def fit(
    folder: Path, config: CallbacksConfig, validate: bool = True, resume: Path | None = None, **options: Any
) -> Weights:
    weights = Weights()
    callbacks = [weights, *build_callbacks(config, folder, Words(), 1, SignalWatch(), Metrics())]  # type: ignore[arg-type]
    trainer = make_trainer(folder, callbacks, enable_checkpointing=True, plugins=[SafeCheckpointIO()], **options)
    trainer.fit(make_module(), Batches(4), Batches(1) if validate else None, ckpt_path=resume, weights_only=True)
    return weights


def config(bleu: int = 0, **parts: Any) -> CallbacksConfig:
    decoding = DecodingConfig(strategy="greedy", max_length_offset=4, loop_ngram_size=0)
    return CallbacksConfig(validation_bleu=ValidationBleuConfig(bleu, decoding), **parts)


@pytest.mark.parametrize("start", [0, 2])
def test_checkpoints_hold_the_average_and_resume_from_the_weights(tmp_path: Path, start: int) -> None:
    weights = fit(tmp_path, config(ema=EmaConfig(0.2, start)), val_check_interval=4)
    first = max(start, 1)  # the number of steps after which the average is the weights
    average = weights.after[first - 1]
    for decay, after in zip((2 / 11, 0.2, 0.2), weights.after[first:], strict=False):  # (1 + 2) / (10 + 2) is more
        average = decay * average + (1 - decay) * after
    for name in ("best", "last"):
        path = tmp_path / "checkpoints" / f"{name}.ckpt"
        torch.testing.assert_close(flat(saved(path)), average, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(flat(saved(path, "current_model_state")), weights.after[-1], rtol=0, atol=0)


def test_random_features_are_not_averaged(tmp_path: Path) -> None:
    """The saved features are those that the weights were last trained with, not the first ones."""
    drawn = {"name": "performer", "features": 4, "redraw_every": 1}
    module = make_module(attention=drawn)
    callbacks = build_callbacks(config(ema=EmaConfig(0.2)), tmp_path, Words(), 1, SignalWatch(), Metrics())  # type: ignore[arg-type]
    trainer = make_trainer(tmp_path, callbacks, enable_checkpointing=True, plugins=[SafeCheckpointIO()])
    trainer.fit(module, Batches(4), Batches(1))
    state, present = (
        saved(tmp_path / "checkpoints" / "last.ckpt", key) for key in ("state_dict", "current_model_state")
    )
    names = [name for name in state if name.endswith("_extra_state")]
    assert names
    assert all(state[name].tolist() == present[name].tolist() for name in names)
    assert all(state[name][1] > 0 for name in names)


def test_without_the_average_a_run_resumes_from_the_weights(tmp_path: Path) -> None:
    fit(tmp_path, config(ema=EmaConfig(0.9)), max_steps=3)
    last = tmp_path / "checkpoints" / "last.ckpt"
    present = saved(last, "current_model_state")
    assert not torch.equal(flat(present), flat(saved(last)))
    module = make_module()
    (tmp_path / "on").mkdir()
    callbacks = build_callbacks(config(), tmp_path / "on", Words(), 1, SignalWatch(), Metrics())  # type: ignore[arg-type]
    trainer = make_trainer(tmp_path, callbacks, enable_checkpointing=True, plugins=[SafeCheckpointIO()], max_steps=3)
    trainer.fit(module, Batches(4), Batches(1), ckpt_path=last, weights_only=True)
    assert torch.equal(flat(module.state_dict()), flat(present))


def test_the_weights_are_validated_until_the_average_starts(tmp_path: Path) -> None:
    weights = fit(tmp_path, config(ema=EmaConfig(0.6, 3)), val_check_interval=2, max_steps=2)
    torch.testing.assert_close(flat(saved(tmp_path / "checkpoints" / "best.ckpt")), weights.after[-1], rtol=0, atol=0)


def test_training_stops_when_validations_stop_improving(tmp_path: Path) -> None:
    parts = {"early_stopping": EarlyStoppingConfig(2), "checkpoint": CheckpointConfig(1, "val/bleu", "max")}
    weights = fit(tmp_path, config(bleu=1, **parts), val_check_interval=1, max_steps=50)
    assert len(weights.after) == 3  # BLEU is 0 from the start
    assert saved(tmp_path / "checkpoints" / "best.ckpt", "global_step") == 1
    assert saved(tmp_path / "checkpoints" / "last.ckpt", "global_step") == 3


def test_a_run_stopped_early_stays_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def go_on(patience: int, **resume: Any) -> Weights:
        parts = {"early_stopping": EarlyStoppingConfig(patience), "checkpoint": CheckpointConfig(1, "val/bleu", "max")}
        return fit(tmp_path, config(bleu=1, **parts), resume=resume.get("path"), val_check_interval=1, max_steps=50)

    last = tmp_path / "checkpoints" / "last.ckpt"
    said = ": callbacks.early_stopping.patience=2 ends the training\n"
    assert len(go_on(2).after) == 3
    assert said in capsys.readouterr().out
    assert len(go_on(2, path=last).after) == 0
    assert said in capsys.readouterr().out
    assert saved(last, "global_step") == 3
    assert len(go_on(4, path=last).after) == 2  # BLEU is still 0
    assert saved(last, "global_step") == 5


def test_without_validation_there_is_no_best_checkpoint(tmp_path: Path) -> None:
    weights = fit(tmp_path, config(checkpoint=CheckpointConfig(3)), validate=False)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"last.ckpt", "previous.ckpt"}
    assert saved(tmp_path / "checkpoints" / "previous.ckpt", "global_step") == 3
    assert saved(tmp_path / "checkpoints" / "last.ckpt", "global_step") == 4  # where training ended, not 3
    torch.testing.assert_close(flat(saved(tmp_path / "checkpoints" / "last.ckpt")), weights.after[-1], rtol=0, atol=0)


def test_without_validation_a_checkpoint_does_not_wait_for_one(tmp_path: Path) -> None:
    last = saving.LastCheckpoint(tmp_path / "last.ckpt", 2)
    options = {"enable_checkpointing": True, "plugins": [SafeCheckpointIO()], "max_steps": 3, "val_check_interval": 2}
    trainer = make_trainer(tmp_path, [last], **options)
    trainer.fit(make_module(), Batches(4), [])
    assert saved(tmp_path / "last.ckpt", "global_step") == 2


def test_checkpoints_by_time(tmp_path: Path, monkeypatch) -> None:
    now = [0.0]

    class Clock(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
            now[0] += 40
            if trainer.global_step == 4:
                raise KeyError("killed")

    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    last = saving.LastCheckpoint(tmp_path / "checkpoints" / "last.ckpt", 100, 1.0)
    trainer = make_trainer(tmp_path, [Clock(), last], enable_checkpointing=True, plugins=[SafeCheckpointIO()])
    with pytest.raises(KeyError, match="killed"):
        trainer.fit(make_module(), Batches(4))
    assert saved(tmp_path / "checkpoints" / "last.ckpt", "global_step") == 3  # a minute on, at a step


def test_a_checkpoint_at_a_validation_is_written_after_it(tmp_path: Path) -> None:
    class Killed(Callback):
        def on_validation_batch_start(self, trainer, *_: Any) -> None:
            if trainer.global_step == 4:
                raise KeyError("killed")

    last = saving.LastCheckpoint(tmp_path / "last.ckpt", 2)
    trainer = make_trainer(
        tmp_path, [Killed(), last], enable_checkpointing=True, plugins=[SafeCheckpointIO()], val_check_interval=2
    )
    with pytest.raises(KeyError, match="killed"):
        trainer.fit(make_module(), Batches(4), Batches(1))
    assert saved(tmp_path / "last.ckpt", "global_step") == 2


def test_a_validation_within_a_step_is_followed_by_a_checkpoint(tmp_path: Path) -> None:
    """best.ckpt falls within a step then, where no run can be resumed exactly."""
    last = saving.LastCheckpoint(tmp_path / "last.ckpt", 100)
    options = {"enable_checkpointing": True, "plugins": [SafeCheckpointIO()], "accumulate_grad_batches": 3}
    trainer = make_trainer(tmp_path, [last], **options, val_check_interval=4, max_steps=3)
    trainer.fit(make_module(), Batches(9), Batches(1))
    assert saved(tmp_path / "last.ckpt", "global_step") == 2  # batch 4 is the first of the second step


class OutOfTime(Callback):
    """Leaves no time after a batch to the trainer's Timer."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if batch_idx + 1 == self.batches:
            (timer,) = (callback for callback in trainer.callbacks if isinstance(callback, Timer))
            timer._offset = 1e6


@pytest.mark.parametrize(
    ("after", "done", "steps"), [(1, 3, 1), (3, 3, 1), (4, 6, 2), (7, 7, 3)], ids=["1", "3", "4", "end of the epoch"]
)
def test_max_time_loses_no_gradient(tmp_path: Path, after: int, done: int, steps: int) -> None:
    last = saving.LastCheckpoint(tmp_path / "last.ckpt", 100)
    final = saving.FinalCheckpoint(tmp_path / "last.ckpt")
    options = {"max_time": "00:01:00:00", "max_steps": 100, "accumulate_grad_batches": 3}
    trainer = make_trainer(
        tmp_path, [OutOfTime(after), final, last], enable_checkpointing=True, plugins=[SafeCheckpointIO()], **options
    )
    trainer.fit(make_module(), Batches(7))
    assert saved(tmp_path / "last.ckpt", "global_step") == steps
    progress = saved(tmp_path / "last.ckpt", "loops")["fit_loop"]["epoch_loop.batch_progress"]
    assert progress["total"]["processed"] == done


def test_a_resume_without_a_step_leaves_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"

    class Ended(Callback):
        def on_train_start(self, trainer, pl_module) -> None:
            trainer.should_stop = True
            started.append(trainer.global_step)

    started: list[int] = []
    make_trainer(tmp_path, [saving.FinalCheckpoint(path)], max_steps=2).fit(make_module(), Batches(7))
    before = path.stat()
    resumed = make_trainer(tmp_path, [Ended(), saving.FinalCheckpoint(path)], max_steps=4)
    resumed.fit(make_module(), Batches(7), ckpt_path=path)
    assert started == [2]
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def draws() -> list[float]:
    return [float(torch.rand(())), float(np.random.rand()), random.random(), random.gauss(0, 1)]  # noqa: NPY002


def trainer_at(batch: int, rank: int = 0) -> Any:
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(total_batch_idx=batch))
    return SimpleNamespace(fit_loop=loop, global_rank=rank)


def test_random_numbers_depend_only_on_seed_batch_and_process() -> None:
    drawn = []
    for seed, batch, rank in ((5, 0, 0), (5, 0, 0), (6, 0, 0), (5, 1, 0), (5, 0, 1)):
        RandomState(seed).on_train_batch_start(trainer_at(batch, rank), *(None, None, 0))  # type: ignore[arg-type]
        drawn.append(draws())
    assert drawn[0] == drawn[1]
    assert len({tuple(numbers) for numbers in drawn}) == 4
    assert all(len(set(column)) == 4 for column in zip(*drawn, strict=True))


def test_validation_leaves_the_random_numbers_of_training_alone(tmp_path: Path) -> None:
    class Draws(Callback):
        def __init__(self) -> None:
            self.numbers: list[float] = []

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
            self.numbers += draws()

        def on_validation_batch_start(self, *_) -> None:
            draws()

    seen = []
    for interval in (1, 4):
        spy = Draws()
        trainer = make_trainer(tmp_path, [RandomState(1), spy], val_check_interval=interval)
        trainer.fit(make_module(dropout=0.1), Batches(4), Batches(1))
        seen.append(spy.numbers)
    assert len(seen[0]) == 16
    assert seen[0] == seen[1]


def test_no_average_without_a_decay(tmp_path: Path) -> None:
    callbacks = build_callbacks(config(), tmp_path, Words(), 1, SignalWatch(), Metrics())  # type: ignore[arg-type]
    assert not any(isinstance(callback, (WeightAverage, ValidationBleu)) for callback in callbacks)
