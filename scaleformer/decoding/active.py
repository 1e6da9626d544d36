"""Which documents of a search are still being decoded.

Letters: B documents, K rows a document (beams or samples), A documents still in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scaleformer.decoding.history import History
from scaleformer.decoding.state import Rows

Watch = Callable[[int, Sequence[int]], bool]  # a document and its new tokens -> whether to continue it
# Steps between checks for finished documents: on a GPU each check waits for the device.
CHECK_EVERY = {"cpu": 1, "cuda": 16}
# The batch is compacted when at most this share of its documents is unfinished, or when so many steps per unfinished
# document were wasted on finished ones, which still take time and whose state may grow.
COMPACT_BELOW = 0.75
WASTED_STEPS = 8


class Active:
    """Which documents are still in the batch, and when to remove the finished ones."""

    def __init__(self, rows: Rows, progress: Callable[[int, float], None] | None, watch: Watch | None) -> None:
        limits = rows.limits
        self.places = torch.arange(limits.shape[0], device=limits.device)  # (A,) in the original batch
        self.done = torch.zeros_like(limits, dtype=torch.bool)  # (A,)
        self.steps = int(limits.max())
        self.rows, self.progress, self.watch = rows.per_document, progress, watch
        self.segments = int(rows.counts.sum())
        self.share = 0.0  # of the source segments that is translated
        self.every = CHECK_EVERY.get(limits.device.type, 16)
        self.looked = 0
        self.live = limits.shape[0]
        self.wasted = 0  # steps of finished documents

    def keep(self, step: int, rows: Rows, history: History) -> Tensor | None:
        """(A',) places of the current batch to keep when it is time to compact, else None."""
        step += 1
        if step % self.every and step < self.steps:
            return None
        if self.progress is not None:
            self.share = max(self.share, 1 - rows.left(self.done) / self.segments)
            self.progress(self.live * (step - self.looked), self.share)
        if self.watch is not None:
            self._show(self.watch, step, rows, history)
        steps, self.looked, self.live = step - self.looked, step, int((~self.done).sum())
        self.wasted += steps * (len(self.done) - self.live)
        if self.live > COMPACT_BELOW * len(self.done) and self.wasted < WASTED_STEPS * self.live:
            return None
        return (~self.done).nonzero()[:, 0]

    def _show(self, watch: Watch, step: int, rows: Rows, history: History) -> None:
        """Pass on the tokens written since the last check, and give up the documents that the watcher rejects."""
        tokens: list[list[int]] = [[]] * len(self.done)
        if self.rows == 1:  # with several rows no tokens are final yet
            fresh = torch.stack([entry[0, :, 0] for entry in history.waiting[self.looked - step :]], 1)  # (A, steps)
            room = (rows.limits - self.looked).clamp(min=0).tolist()
            tokens = [written[:most] for written, most in zip(fresh.tolist(), room, strict=True)]
        wanted = [watch(place, written) for place, written in zip(self.places.tolist(), tokens, strict=True)]
        self.done = self.done | ~torch.tensor(wanted, device=self.done.device)

    def drop(self, keep: Tensor) -> None:
        self.places, self.done, self.wasted = self.places[keep], self.done[keep], 0
