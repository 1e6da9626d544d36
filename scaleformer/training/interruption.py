"""Signals that end a training so that it can be resumed."""

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
PATIENCE = 10.0  # seconds that a library may keep Python from handling a signal that should end the program


def interrupted(stop: int, step: int, run: Path) -> Interrupted:
    """The exception for a stop request (`TranslationModule.stop`) once the run is saved."""
    return Interrupted(f"interrupted by {SIGNALS[stop - 1].name}, saved at step {step:,}: continue with resume={run}")


class SignalWatch(Callback):
    """Makes SIGINT, SIGTERM, SIGUSR1 and SIGHUP end the program by `Interrupted`; an ignored SIGHUP (`nohup`) stays so.

    Outside training, and at the second signal, the program ends at once. In training it ends after the current step
    (and a validation in progress), when all processes know of the signal and `LastCheckpoint` has saved. A signal to
    one process is enough. Use it as a context manager around the program; on exit it restores the previous handlers.

    Python handles signals only between two of its instructions, and waiting for another machine is one instruction.
    Where Python has not handled a signal that should end the program for `PATIENCE` seconds, a thread calls `ending`
    and exits with 75.
    """

    writer: int | None = None  # write end of the pipe in which the system reports signals

    def __init__(self) -> None:
        self.module: Any = None
        self.before: dict[int, Any] = {}
        self.ending: Callable[[], object] = lambda: None
        self.heard = 0.0  # when Python last handled a signal
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
        for number in self.before:  # Lightning has installed handlers of its own, which wait for other processes
            signal.signal(number, self.receive)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.module = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.module = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.heard, self.unheard = time.monotonic(), 0
        if self.module is None or self.module.stop:
            at_once = " at once; the steps after the last checkpoint are lost" if self.module else ""
            raise Interrupted(f"interrupted by {signal.Signals(number).name}{at_once}")
        self.module.stop = 1 + SIGNALS.index(signal.Signals(number))
        _say("\nstopping after this step (once more: stop at once)")

    def _watch(self, reader: int) -> None:
        while number := os.read(reader, 1):
            if number[0] in self.before:
                judge = threading.Timer(PATIENCE, self._judge, (number[0], time.monotonic()))
                judge.daemon = True
                judge.start()
        os.close(reader)

    def _judge(self, number: int, came: float) -> None:
        """End the program if Python has not handled this signal and should have ended."""
        if self.heard > came - 1:  # Python may handle it up to a second before the thread sees it
            return
        self.unheard += 1
        if self.module is None or self.module.stop or self.unheard > 1:
            self.ending()
            name = signal.Signals(number).name
            _say(f"interrupted by {name} while waiting, perhaps for another machine")
            os._exit(RESUMABLE)


def _say(line: str) -> None:
    with suppress(OSError):  # the terminal may be closed
        os.write(2, f"{line}\n".encode())  # print is unsafe here: it may be what was interrupted


def _forget() -> None:
    if SignalWatch.writer is not None:
        signal.set_wakeup_fd(-1)  # a forked process, such as a data worker, gets signals of its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
