"""When checkpoints are written: best.ckpt after validations, last.ckpt in between, at signals and at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint, ModelCheckpoint

from scaleformer.training.interruption import interrupted
from scaleformer.training.lightning_internals import before_this_batch, validates_next
from scaleformer.training.module import TranslationModule
from scaleformer.training.progress import TrainingProgress
from scaleformer.training.run_folder import write_status

FIRST = 60.0  # seconds until the first checkpoint of a run


class BestCheckpoint(ModelCheckpoint):
    """best.ckpt, by the monitored metric. Keeps its best score when the folder is moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lightning's own forgets the score when the folder is renamed, and takes the next validation for the best."""
        assert self.dirpath is not None
        folder = Path(self.dirpath)
        best = Path(state_dict.get("best_model_path") or "best.ckpt").name
        if (folder / best).is_file():
            state_dict = {**state_dict, **_moved(state_dict, folder), "dirpath": self.dirpath}
        elif state_dict.get("dirpath") != self.dirpath:
            return  # resumed in a new folder, which has no best yet
        super().load_state_dict(state_dict)


def _moved(state: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The paths in the state of a ModelCheckpoint, in `folder`."""
    names = ("best_model_path", "kth_best_model_path", "last_model_path")
    moved: dict[str, Any] = {n: str(folder / Path(state[n]).name) if state.get(n) else "" for n in names}
    scores = state.get("best_k_models") or {}
    return {**moved, "best_k_models": {str(folder / Path(path).name): score for path, score in scores.items()}}


class LastCheckpoint(Checkpoint):
    """last.ckpt at regular steps and minutes, and where a signal ends the training: then it raises `Interrupted`.

    Where a validation follows the step, the checkpoint is written after it: a run resumed from before it would skip it.
    Where an epoch ends with the step, the checkpoint is written when the next epoch begins: otherwise Lightning would
    count the first batches of the next epoch towards the old one, and accumulate fewer of them. Training stops only
    between steps, never with gradients half accumulated.

    minutes  None: by steps only; a run without a checkpoint gets one after the first minute. The clock of the first
             process counts
    status.json follows every logged step.
    """

    def __init__(self, path: Path, every_n_train_steps: int, minutes: float | None = None) -> None:
        self.path = path
        self.every = every_n_train_steps
        self.wait = self.usual_wait = 60 * (minutes or math.inf)  # seconds
        self.step = self.saved_step = 0
        self.saved = 0.0
        self.pending = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.step = self.saved_step = trainer.global_step
        self.saved = time.monotonic()
        self.wait = self.usual_wait if self.path.is_file() else min(self.usual_wait, FIRST)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TranslationModule)
        if self.pending and not pl_module.batches:
            with before_this_batch(trainer):
                self._save(trainer)
        if pl_module.stopping and self.saved_step == trainer.global_step and not pl_module.batches:
            raise interrupted(pl_module.stopping, self.saved_step, self.path.parent.parent)
        if trainer.is_global_zero and time.monotonic() - self.saved >= self.wait:
            pl_module.save = 1

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TranslationModule)
        if trainer.global_step == self.step:  # while gradients accumulate
            # A Timer runs before this callback, checks again later, and would end training after any batch. That would
            # lose gradients that the checkpoint counts as trained on.
            trainer.should_stop = False
            return
        self.step = trainer.global_step
        if self.pending or self.step % self.every == 0 or pl_module.saving or pl_module.stopping:
            self.pending = True
            if not validates_next(trainer) and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
                self._save(trainer)
        if trainer.is_global_zero and self.step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            write_status(self.path.parent.parent, "training", self.step)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, TranslationModule)
        if pl_module.batches:  # best.ckpt of now lacks their gradients, and a run should not have to go on from it
            self.pending = True
        elif self.pending or pl_module.stopping:
            self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        begun = time.monotonic()
        trainer.save_checkpoint(self.path)
        if trainer.is_global_zero:
            write_status(self.path.parent.parent, "training", trainer.global_step)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, TrainingProgress):
                callback.not_training(time.monotonic() - begun)
        self.saved_step, self.saved, self.pending = trainer.global_step, time.monotonic(), False
        self.wait = self.usual_wait


class FinalCheckpoint(Callback):
    """Writes last.ckpt when training ends, also between two regular checkpoints. A resumed training that ends before
    its first step leaves the file unchanged: translations may have been started with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first_step = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.first_step = trainer.global_step

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.global_step > self.first_step:
            trainer.save_checkpoint(self.path)
