"""Training batches, epoch after epoch, that resume exactly where a checkpoint was written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from scaleformer.batch import Batch
from scaleformer.data.mixture import MixedBatches
from scaleformer.data.sampler import KeptBatches, Position
from scaleformer.data.stages import StagedBatches
from scaleformer.data.streaming import StreamedBatches
from scaleformer.system.errors import DataError


class TrainLoader:
    """Each iteration yields the batches of one epoch; the next iteration those of the next epoch.

    It has no length: with random cuts, epochs differ in their number of batches. Iteration starts after the last batch
    that was trained on according to `trained`: a trainer prefetches, so a batch may be handed out but not trained on.
    Positions do not depend on the process or the number of workers.
    """

    def __init__(
        self,
        batches: KeptBatches | StreamedBatches | MixedBatches | StagedBatches,
        start: Position = (0, 0, 0),
        trained: Callable[[], int] | None = None,
    ) -> None:
        self._batches = batches
        self._handed_out = 0
        self._count_trained = trained
        self._start = start
        # Positions by the number of batches trained on. The first entry belongs to the last trained batch or an earlier
        # one, the last entry to the last batch handed out.
        self._marks: deque[tuple[int, Position]] = deque()

    def _trained(self) -> int:
        return self._handed_out if self._count_trained is None else self._count_trained()

    @property
    def position(self) -> Position:
        """Epoch, its window (0 for a kept corpus) and the number of batches of the window that were trained on."""
        self._forget()
        return self._marks[0][1] if self._marks else self._start

    def _forget(self) -> None:
        """Drop the marks that training has passed."""
        trained = self._trained()
        while len(self._marks) > 1 and self._marks[1][0] <= trained:
            self._marks.popleft()

    def __iter__(self) -> Iterator[Batch]:
        start, count = self.position, self._trained()
        self._marks = deque([(count, start)])
        while True:
            before = count
            for after, batch in self._batches.rest(start):
                count += 1
                self._handed_out += 1
                self._marks.append((count, after))
                self._forget()
                yield batch
            if count == before and start[1:] == (0, 0):
                raise DataError(
                    "the whole epoch has no training example: the training split is empty, or data.max_ratio leaves "
                    "all of it out"
                )
            nothing_left = count == before  # the position was after the last batch of an epoch
            start = (start[0] + 1, 0, 0)
            self._marks.append((count, start))
            if not nothing_left:
                return
