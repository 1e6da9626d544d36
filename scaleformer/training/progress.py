"""The progress display of a training."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Timer
from pytorch_lightning.profilers import PassThroughProfiler
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text
from torch import Tensor

from scaleformer.batch import Batch

# metric, its name and digits; the bar keeps the values of the last validation, lines without a terminal do not
SHOWN = (("train/loss", "loss", 3), ("val/loss", "val", 3), ("val/bleu", "BLEU", 1))


class StatusBar(Progress):
    """A bar above a line of text; both fit into 80 columns."""

    def __init__(self, console: Console) -> None:
        self.status = ""
        left = TextColumn("left {task.fields[left]}")
        super().__init__(BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), left, console=console)
        self.task = self.add_task("", total=1.0, left="-:--:--")

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Text(self.status, overflow="fold")


class DataClock(PassThroughProfiler):
    """Adds up the seconds that training waits for batches, from Lightning's profiler calls."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = self.since = 0.0

    def start(self, action_name: str) -> None:
        if action_name.endswith("train_dataloader_next"):
            self.since = time.perf_counter()

    def stop(self, action_name: str) -> None:
        if action_name.endswith("train_dataloader_next"):
            self.waited += time.perf_counter() - self.since


class TrainingProgress(Callback):
    """A bar with loss, tokens per second and time left; without a terminal, a line at every logged step.

    Training ends at the nearer of `trainer.max_steps` and `trainer.max_time`. The time left is estimated from this
    process's average time per step, validations included.

    Logs, over the batches since the last logged step:
    train/tokens_per_second  real source and target tokens of all devices, without padding, over the training time; the
                             clock stops while validating and saving (`not_training`)
    train/padding            share of positions in the padded batches that hold no token
    train/data_share         share of that time spent waiting for batches (not with a trainer.profiler of your own)
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.bar: StatusBar | None = None
        self.started = self.since = 0.0
        self.first_step = 0
        self.paused: float | None = None
        self.tokens: Tensor | int = 0  # on the device: counting does not wait for it
        self.positions = 0
        self.speed = 0.0
        self.shown = -1
        self.clock = DataClock()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = self.since = time.perf_counter()
        self.first_step = self.shown = trainer.global_step
        if type(trainer.profiler) is PassThroughProfiler:  # type: ignore[attr-defined]
            trainer.profiler = self.clock  # type: ignore[attr-defined]
        self.clock.waited = 0.0
        if self.console.is_terminal and trainer.is_global_zero:
            self.bar = StatusBar(self.console)
            self.bar.start()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        if self.paused is not None:
            self.since += time.perf_counter() - self.paused
            self.paused = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.tokens = self.tokens + (batch.source_mask.sum() + batch.target_mask.sum())
        self.positions += batch.source_mask.numel() + batch.target_mask.numel()
        step, every = trainer.global_step, trainer.log_every_n_steps  # type: ignore[attr-defined]
        due = step % every == 0 and step != self.shown  # the step does not change while gradients accumulate
        if due or self._ends(trainer):  # Lightning also logs the last step
            seconds = max(time.perf_counter() - self.since, 1e-9)
            self.speed = float(self.tokens) * trainer.world_size / seconds
            row = {"tokens_per_second": self.speed, "padding": 1 - float(self.tokens) / self.positions}
            if trainer.profiler is self.clock:  # type: ignore[attr-defined]
                row["data_share"] = self.clock.waited / seconds
            pl_module.log_dict({f"train/{name}": value for name, value in row.items()})
        if due:
            self.shown = step
            self._show(trainer)
            self.tokens, self.positions, self.since, self.clock.waited = 0, 0, time.perf_counter(), 0.0
        elif self.bar is not None:
            self.bar.update(self.bar.task, **self._place(trainer))

    def not_training(self, seconds: float) -> None:
        """Do not count time that passed since the last batch, unless it is that of a validation."""
        self.since += seconds if self.paused is None else 0.0

    def _ends(self, trainer: pl.Trainer) -> bool:
        """Whether training stops here; a Timer would say so only after this callback."""
        timers = [c for c in trainer.callbacks if isinstance(c, Timer)]  # type: ignore[attr-defined]
        return trainer.should_stop or any((timer.time_remaining() or 1.0) <= 0 for timer in timers)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.paused = time.perf_counter()
        if self.bar is not None:
            self._show(trainer, "validating")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._show(trainer, validated=True)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _show(self, trainer: pl.Trainer, note: str = "", validated: bool = False) -> None:
        if not trainer.is_global_zero:
            return
        metrics = trainer.callback_metrics
        parts = [f"step {trainer.global_step:,}"]
        for name, short, digits in SHOWN:
            if name in metrics and (validated or self.bar is not None or not name.startswith("val/")):
                parts.append(f"{short} {float(metrics[name]):.{digits}f}")
        if note or self.speed:
            parts.append(note or f"{float(self.speed):,.0f} tokens/s")
        place = self._place(trainer)
        if self.bar is not None:
            self.bar.status = "  ".join(parts)
            self.bar.update(self.bar.task, **place)
        else:
            line = "  ".join([f"{place['completed']:4.0%}", *parts, f"left {place['left']}"])
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _place(self, trainer: pl.Trainer) -> dict[str, Any]:
        """The completed share, and the time left as text."""
        shares, left = [0.0], []
        if trainer.max_steps > 0:
            shares.append(trainer.global_step / trainer.max_steps)
            if (steps := trainer.global_step - self.first_step) > 0:
                pace = (time.perf_counter() - self.started) / steps
                left.append(pace * max(trainer.max_steps - trainer.global_step, 0))
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, Timer) and (seconds := callback.time_remaining()) is not None:
                shares.append(1 - seconds / max(seconds + callback.time_elapsed(), 1e-9))
                left.append(max(seconds, 0.0))
        words = str(timedelta(seconds=round(min(left)))) if left else "-:--:--"
        return {"completed": min(max(shares), 1.0), "left": words}
