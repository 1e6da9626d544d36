"""Signals that end a training so that it can go on later."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from scaleformer.system.errors import RESUMABLE, Interrupted

NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
PATIENCE = 10.0  # seconds that a library may keep Python from hearing of a signal that ends the program at once


def interrupted(stop: int, step: int, run: Path) -> Interrupted:
    """What to raise for a wish (`TranslationModule.stop`) once the run in that folder is saved."""
    return Interrupted(f"interrupted by {SIGNALS[stop - 1].name}, saved at step {step:,}: go on by resume={run}")


class SignalWatch(Callback):
    """Makes SIGINT, SIGTERM, SIGUSR1 and SIGHUP end the program by `Interrupted`; a SIGHUP that is ignored (`nohup`)
    stays so.

    Outside of training, and at the second signal, at once; in training after the present step (a validation is
    finished first), when all processes know of it and `LastCheckpoint` has saved. To tell one process is enough.
    Used as a context manager around all of it; leaving it puts the handlers back that were there before.

    Python hears of a signal between two of its instructions alone, and a wait for other machines is one. Where it has
    not heard for `PATIENCE` seconds of one that ends the program at once, a thread calls `ending` and exits with 75.
    """

    writer: int | None = None  # of the pipe into which the system writes each signal as it comes

    def __init__(self) -> None:
        self.module: Any = None
        self.before: dict[int, Any] = {}
        self.ending: Callable[[], object] = lambda: None
        self.heard = 0.0  # when Python last heard of a signal
        self.unheard = 0  # signals since

    def __enter__(self) -> SignalWatch:
        if threading.current_thread() is threading.main_thread():
            ignored = [n for n in SIGNALS if n.name == "SIGHUP" and signal.getsignal(n) == signal.SIG_IGN]
            self.before = {n: signal.signal(n, self.receive) for n in SIGNALS if n not in ignored}
            reader, SignalWatch.writer = os.pipe()
            os.set_blocking(SignalWatch.writer, False)
            signal.set_wakeup_fd(SignalWatch.writer, warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(reader,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if self.before and SignalWatch.writer is not None:
            signal.set_wakeup_fd(-1)
            os.close(SignalWatch.writer)  # which ends the thread
            SignalWatch.writer, self.heard = None, float("inf")

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
        self.heard, self.unheard = time.monotonic(), 0
        if self.module is None or self.module.stop:
            at_once = " at once, what came after the last checkpoint is lost" if self.module else ""
            raise Interrupted(f"interrupted by {signal.Signals(number).name}{at_once}")
        self.module.stop = 1 + SIGNALS.index(signal.Signals(number))
        _say("\nstopping after this step (once more: at once)")

    def _watch(self, reader: int) -> None:
        while number := os.read(reader, 1):
            if number[0] in self.before:
                judge = threading.Timer(PATIENCE, self._judge, (number[0], time.monotonic()))
                judge.daemon = True
                judge.start()
        os.close(reader)

    def _judge(self, number: int, came: float) -> None:
        """End the program if Python has not heard of this signal, and should have ended by it."""
        if self.heard > came - 1:  # a second, for Python may hear of it before the thread does
            return
        self.unheard += 1
        if self.module is None or self.module.stop or self.unheard > 1:
            self.ending()
            name = signal.Signals(number).name
            _say(f"interrupted by {name} while something, another machine perhaps, was waited for")
            os._exit(RESUMABLE)


def _say(line: str) -> None:
    with suppress(OSError):  # a terminal that has gone
        os.write(2, f"{line}\n".encode())  # a print might be what was interrupted


def _forget() -> None:
    if SignalWatch.writer is not None:
        signal.set_wakeup_fd(-1)  # a forked process, such as one that makes batches, has signals of its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
