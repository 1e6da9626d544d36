"""Signals that end a training so that it can go on later."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from scaleformer.system.errors import Interrupted

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))


def interrupted(stop: int, step: int, run: Path) -> Interrupted:
    """What to raise for a wish (`TranslationModule.stop`) once the run in that folder is saved."""
    return Interrupted(f"interrupted by {SIGNALS[stop - 1].name}, saved at step {step:,}: go on by resume={run}")


class SignalWatch(Callback):
    """Makes SIGINT, SIGTERM and SIGUSR1 end the program by `Interrupted`.

    Outside of training, and at the second signal, at once; in training after the present step (a validation is
    finished first), when all processes know of it and `LastCheckpoint` has saved. To tell one process is enough.
    Used as a context manager around all of it; leaving it puts the handlers back that were there before.
    """

    def __init__(self) -> None:
        self.module: Any = None
        self.before: dict[int, Any] = {}

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self.receive) for number in SIGNALS}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.module = pl_module
        for number in self.before:  # Lightning has put its own before ours, which waits for other processes in there
            signal.signal(number, self.receive)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.module = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.module = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        if self.module is None or self.module.stop:
            at_once = " at once, what came after the last checkpoint is lost" if self.module else ""
            raise Interrupted(f"interrupted by {signal.Signals(number).name}{at_once}")
        self.module.stop = 1 + SIGNALS.index(signal.Signals(number))
        os.write(2, b"\nstopping after this step (once more: at once)\n")  # a print might be what was interrupted
