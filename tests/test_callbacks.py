"""The callbacks take effect: averaging, random states, translations, early stopping, checkpoints."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import Callback

from scaleformer import saving
from scaleformer.callbacks import RandomState, ValidationBleu, WeightAverage, build_callbacks
from scaleformer.checkpoint_io import SafeCheckpointIO
from scaleformer.decoding import DecodingConfig
from scaleformer.interruption import SignalWatch
from scaleformer.settings import (
    CallbacksConfig,
    CheckpointConfig,
    EarlyStoppingConfig,
    EmaConfig,
    ValidationBleuConfig,
)
from tests.training import Batches, make_module, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


class Words:
    """Stands for the data: every token a word."""

    @property
    def target_tokenizer(self) -> Any:
        return SimpleNamespace(decode_segments=lambda tokens: [" ".join(f"w{t}" for t in tokens)])


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


def fit(folder: Path, config: CallbacksConfig, validate: bool = True, **options: Any) -> Weights:
    weights = Weights()
    callbacks = [weights, *build_callbacks(config, folder, Words(), 1, SignalWatch())]  # type: ignore[arg-type]
    trainer = make_trainer(folder, callbacks, enable_checkpointing=True, plugins=[SafeCheckpointIO()], **options)
    trainer.fit(make_module(), Batches(4), Batches(1) if validate else None)
    return weights


def config(bleu: int = 0, **parts: Any) -> CallbacksConfig:
    decoding = DecodingConfig(strategy="greedy", max_length_offset=4)
    return CallbacksConfig(validation_bleu=ValidationBleuConfig(bleu, "none", decoding), **parts)


@pytest.mark.parametrize("start", [0, 2])
def test_checkpoints_hold_the_average_and_go_on_from_the_weights(tmp_path: Path, start: int) -> None:
    weights = fit(tmp_path, config(ema=EmaConfig(0.2, start)), val_check_interval=4)
    first = max(start, 1)  # the number of steps after which the average is the weights
    average = weights.after[first - 1]
    for decay, after in zip((2 / 11, 0.2, 0.2), weights.after[first:], strict=False):  # (1 + 2) / (10 + 2) is more
        average = decay * average + (1 - decay) * after
    for name in ("best", "last"):
        path = tmp_path / "checkpoints" / f"{name}.ckpt"
        torch.testing.assert_close(flat(saved(path)), average, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(flat(saved(path, "current_model_state")), weights.after[-1], rtol=0, atol=0)


def test_until_the_average_starts_the_weights_themselves_are_validated(tmp_path: Path) -> None:
    weights = fit(tmp_path, config(ema=EmaConfig(0.6, 3)), val_check_interval=2, max_steps=2)
    torch.testing.assert_close(flat(saved(tmp_path / "checkpoints" / "best.ckpt")), weights.after[-1], rtol=0, atol=0)


def test_training_stops_when_validations_stop_improving(tmp_path: Path) -> None:
    parts = {"early_stopping": EarlyStoppingConfig(2), "checkpoint": CheckpointConfig(1, "val/bleu", "max")}
    weights = fit(tmp_path, config(bleu=1, **parts), val_check_interval=1, max_steps=50)
    assert len(weights.after) == 3  # BLEU is 0 from the first on
    assert saved(tmp_path / "checkpoints" / "best.ckpt", "global_step") == 1
    assert saved(tmp_path / "checkpoints" / "last.ckpt", "global_step") == 3


def test_without_validation_there_is_no_best_checkpoint(tmp_path: Path) -> None:
    weights = fit(tmp_path, config(checkpoint=CheckpointConfig(3)), validate=False)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"last.ckpt", "previous.ckpt"}
    assert saved(tmp_path / "checkpoints" / "previous.ckpt", "global_step") == 3
    assert saved(tmp_path / "checkpoints" / "last.ckpt", "global_step") == 4  # not 3: as training ended
    torch.testing.assert_close(flat(saved(tmp_path / "checkpoints" / "last.ckpt")), weights.after[-1], rtol=0, atol=0)


def test_checkpoints_by_the_clock(tmp_path: Path, monkeypatch) -> None:
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
    assert saved(tmp_path / "checkpoints" / "last.ckpt", "global_step") == 3  # a minute after the start, at a step


def test_a_checkpoint_that_meets_a_validation_is_written_after_it(tmp_path: Path) -> None:
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


def test_validation_bleu_of_perfect_and_of_limited_translations(tmp_path: Path, monkeypatch) -> None:
    decoded: list[int] = []

    def perfect(model, source, mask, segments, decoding):
        decoded.append(len(source))
        batch = next(iter(Batches(1)))
        rows = zip(batch.target_output, batch.target_mask, strict=True)
        return [[SimpleNamespace(tokens=tokens[real].tolist())] for tokens, real in rows][: len(source)]

    monkeypatch.setattr("scaleformer.callbacks.decode", perfect)
    for examples, expected in ((1, [1]), (10, [2])):
        decoded.clear()
        bleu = ValidationBleu(Words(), examples, DecodingConfig(), "none")  # type: ignore[arg-type]
        trainer = make_trainer(tmp_path, [bleu])
        trainer.validate(make_module(), Batches(1), verbose=False)
        assert decoded == expected
        assert float(trainer.callback_metrics["val/bleu"]) == pytest.approx(100)
        assert float(trainer.callback_metrics["val/chrf"]) == pytest.approx(100)
        assert not bleu.hypotheses


def draws() -> list[float]:
    return [float(torch.rand(())), float(np.random.rand()), random.random(), random.gauss(0, 1)]  # noqa: NPY002


def trainer_at(batch: int, rank: int = 0) -> Any:
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(total_batch_idx=batch))
    return SimpleNamespace(fit_loop=loop, global_rank=rank)


def test_what_a_batch_draws_depends_on_seed_place_and_process_alone() -> None:
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


def test_the_average_is_not_made_where_it_is_not_asked_for(tmp_path: Path) -> None:
    callbacks = build_callbacks(config(), tmp_path, Words(), 1, SignalWatch())  # type: ignore[arg-type]
    assert not any(isinstance(callback, (WeightAverage, ValidationBleu)) for callback in callbacks)
