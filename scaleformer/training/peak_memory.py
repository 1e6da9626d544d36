"""Keeps resident memory bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from scaleformer.system.allocator import give_back_memory
from scaleformer.system.measure import memory_status


class TrimMemory(Callback):
    """Returns free memory to the system when the process holds `GROWTH` times what a few batches need.

    Batches of varying length leave holes in the heap of the C library that the next batch does not fit into: without
    this callback, training on a CPU holds several times the memory that it uses. The need is the largest amount held
    in the first `BATCHES` batches after memory was returned. Memory is not returned after every batch, since the next
    one would have to fetch it again page by page.
    """

    BATCHES = 10
    GROWTH = 1.3

    def __init__(self) -> None:
        self.give_back: Callable[[], None] = give_back_memory
        self.batches = 0  # since memory was given back
        self.needed = 0  # bytes

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        held = memory_status("VmRSS")
        self.batches += 1
        if self.batches <= self.BATCHES:
            self.needed = max(self.needed, held)
        elif held > self.GROWTH * self.needed:
            self.give_back()
            self.batches = self.needed = 0
