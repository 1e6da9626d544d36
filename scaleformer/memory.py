"""Resident memory that stays flat."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback


class TrimMemory(Callback):
    """Gives memory that is free back to the system, once a minute.

    Batches of ever different lengths leave holes in the heap of the C library that the next batch does not fit into:
    without this a training on a CPU holds two to three times what it uses after an hour, and more later. Does nothing
    where the C library has no malloc_trim (it is glibc's).
    """

    SECONDS = 60.0

    def __init__(self) -> None:
        try:
            self.trim: Any = ctypes.CDLL(None).malloc_trim
        except (AttributeError, OSError, TypeError):
            self.trim = None
        self.last = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.trim is not None and time.monotonic() - self.last >= self.SECONDS:
            self.trim(0)
            self.last = time.monotonic()
