"""What happens around the training loop: progress, translation of the validation set, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, EMAWeightAveraging, ModelCheckpoint, Timer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from .batch import Batch
from .data.tokenizer import Tokenizer
from .decoding import DecodingConfig, decode
from .evaluation.bleu import corpus_bleu
from .lightning_module import TranslationModule


class ValidationBleu(Callback):
    """Logs `val/bleu`: sacrebleu of real translations of the first examples of the validation set.

    An example is a document, or the part of one that fits `data.max_tokens`; segments are joined by a space. The
    scripts evaluate whole documents; this curve is for choosing checkpoints.

    examples  how many; 0 turns the callback off
    decoding  greedy by default, since it runs at every validation
    """

    def __init__(self, tokenizer: Tokenizer, examples: int, decoding: DecodingConfig, tokenize: str = "13a") -> None:
        self.tokenizer = tokenizer
        self.examples = examples
        self.decoding = decoding
        self.tokenize = tokenize
        self.hypotheses: list[str] = []
        self.references: list[str] = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        count = min(len(batch), self.examples - len(self.hypotheses))
        if count <= 0 or trainer.sanity_checking:
            return
        assert isinstance(pl_module, TranslationModule)
        best = decode(
            pl_module.model,
            batch.source[:count],
            batch.source_mask[:count],
            batch.source_segments[:count],
            self.decoding,
        )
        self.hypotheses += [self._text(row[0].tokens) for row in best]
        real = zip(batch.target_output[:count], batch.target_mask[:count], strict=True)
        self.references += [self._text(tokens[mask].tolist()) for tokens, mask in real]

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.hypotheses:
            score = corpus_bleu(self.hypotheses, self.references, tokenize=self.tokenize)
            pl_module.log("val/bleu", torch.tensor(score), prog_bar=True, sync_dist=True)
        self.hypotheses, self.references = [], []

    def _text(self, tokens: Sequence[int]) -> str:
        return " ".join(self.tokenizer.decode_segments(tokens)).strip()


class FinalCheckpoint(Callback):
    """last.ckpt as training stands when it ends, wherever that is between two regular checkpoints."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(self.path)


class TrainingProgress(Callback):
    """A bar with loss, tokens a second and time left; a line at every logged step where there is no terminal.

    The end is the nearer of `trainer.max_steps` and `trainer.max_time`. Logs `train/tokens_per_second`: real source
    and target tokens, without pads, over all the time since the line before (validation included).
    """

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        self.tokens = 0
        self.since = 0.0
        self.speed = 0.0
        self.shown = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.since = time.perf_counter()
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.bar.add_task("training", total=1.0)
            self.bar.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.tokens += int(batch.source_mask.sum()) + int(batch.target_mask.sum())
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every or trainer.global_step == self.shown:
            return  # between two optimizer steps, while gradients accumulate, the step stands still
        self.shown = trainer.global_step
        now = time.perf_counter()
        self.speed = self.tokens * trainer.world_size / max(now - self.since, 1e-9)
        self.tokens, self.since = 0, now
        pl_module.log("train/tokens_per_second", self.speed)
        self._show(trainer)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking and not self.console.is_terminal:
            self._show(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _show(self, trainer: pl.Trainer) -> None:
        if not trainer.is_global_zero:
            return
        metrics = trainer.callback_metrics
        parts = [f"step {trainer.global_step}"]
        for name, digits in (("train/loss", 3), ("val/loss", 3), ("val/bleu", 1)):
            if name in metrics:
                parts.append(f"{name} {float(metrics[name]):.{digits}f}")
        parts.append(f"{self.speed:,.0f} tokens/s")
        done = self._done(trainer)
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=done, description="  ".join(parts))
        else:
            self.console.print(f"{done:4.0%}  " + "  ".join(parts), highlight=False, soft_wrap=True)

    def _done(self, trainer: pl.Trainer) -> float:
        shares = [0.0]
        if trainer.max_steps > 0:
            shares.append(trainer.global_step / trainer.max_steps)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, Timer) and (left := callback.time_remaining()) is not None:
                shares.append(1 - left / max(left + callback.time_elapsed(), 1e-9))
        return min(max(shares), 1.0)


def build_callbacks(config: dict[str, Any], run: Path, tokenizer: Tokenizer) -> list[Callback]:
    """The callbacks that `conf/callbacks` describes, in the order that they need.

    Before the averaging come the translation, since the end of a validation puts the raw weights back, and the final
    checkpoint, since the end of training replaces them by the average.
    """
    checkpoint, ema, early = config["checkpoint"], config["ema"], config["early_stopping"]
    folder = run / "checkpoints"
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False, "save_weights_only": False}
    callbacks: list[Callback] = [TrainingProgress()]
    validation = config["validation_bleu"]
    if validation["examples"]:
        decoding = DecodingConfig(**validation["decoding"])
        callbacks.append(ValidationBleu(tokenizer, validation["examples"], decoding, validation["tokenize"]))
    callbacks.append(FinalCheckpoint(folder / "last.ckpt"))
    if ema["decay"]:
        callbacks.append(EMAWeightAveraging(decay=ema["decay"], update_starting_at_step=ema["start_step"]))
    if early["patience"]:
        callbacks.append(EarlyStopping(checkpoint["monitor"], patience=early["patience"], mode=checkpoint["mode"]))
    callbacks.append(ModelCheckpoint(filename="best", monitor=checkpoint["monitor"], mode=checkpoint["mode"], **common))
    callbacks.append(ModelCheckpoint(filename="last", every_n_train_steps=checkpoint["every_n_train_steps"], **common))
    return callbacks
