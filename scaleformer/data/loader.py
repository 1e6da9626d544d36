"""Training batches, epoch after epoch, that go on exactly where a checkpoint was written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from scaleformer.batch import Batch
from scaleformer.data.errors import DataError
from scaleformer.data.mixture import MixedBatches
from scaleformer.data.sampler import KeptBatches, Position
from scaleformer.data.streaming import StreamedBatches


class TrainLoader:
    """Iterating gives the batches of one epoch; the next time those of the next.

    It has no length: with cuts drawn anew, epochs differ in their number of batches. Iterating starts after the last
    batch that was trained on, as `trained` counts them (a trainer fetches ahead, so handing out is not training).
    Positions are the same in all processes and with any number of workers.
    """

    def __init__(
        self,
        batches: KeptBatches | StreamedBatches | MixedBatches,
        start: Position = (0, 0, 0),
        trained: Callable[[], int] | None = None,
    ) -> None:
        self._batches = batches
        self._handed_out = 0
        self._count_trained = trained
        self._start = start
        # Where training stands when so many batches were trained on; the first entry is of the last trained batch or
        # before it, the last one of the last batch that was handed out.
        self._marks: deque[tuple[int, Position]] = deque()

    def _trained(self) -> int:
        return self._handed_out if self._count_trained is None else self._count_trained()

    @property
    def position(self) -> Position:
        """Epoch, window of it (0 in a kept corpus) and the number of its batches that were trained on."""
        self._forget()
        return self._marks[0][1] if self._marks else self._start

    def _forget(self) -> None:
        """The marks that training has passed."""
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
                    "no example to train on is left in the whole epoch: the training split is empty, or data.max_ratio "
                    "leaves all of it out"
                )
            nothing_left = count == before  # it stood behind the last batch of an epoch
            start = (start[0] + 1, 0, 0)
            self._marks.append((count, start))
            if not nothing_left:
                return
