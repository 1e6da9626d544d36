"""Stages of a training: in each, documents are cut and drawn in another way; each begins a new epoch."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from scaleformer.batch import Batch
from scaleformer.data.sampler import Position, Recipe

if TYPE_CHECKING:
    import pytorch_lightning as pl

log = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """Where a stage began.

    epoch, step  its first epoch, and the optimizer steps done by then
    drawn        by corpus ("" for a single one), what the stage before had drawn, as `MixedBatches.progress`
    """

    epoch: int = 0
    step: int = 0
    drawn: Mapping[str, Sequence[float]] = {}


class StagedBatches:
    """The batches of the stages, one stage after the other; an epoch ends where its stage ends.

    make     for each stage, its batches from a position on, which are `KeptBatches` or `MixedBatches`
    is_over  whether a stage is over after so many optimizer steps of the run; never the last one
    steps    optimizer steps done, asked when no batch is on its way; None: as many as the batches make
    began    the stages so far; the last of them goes on
    """

    def __init__(
        self,
        make: Sequence[Callable[[Position], Any]],
        is_over: Callable[[int, int], bool],
        recipe: Recipe,
        steps: Callable[[], int] | None = None,
        began: Sequence[Beginning] = (Beginning(),),
    ) -> None:
        self.began = list(began)
        self._make, self._is_over, self._recipe = make, is_over, recipe
        self._taken = self.began[-1].step
        self._steps = steps or (lambda: self._taken)
        self._batches: dict[int, Any] = {}  # of the latest stage

    def stage(self, epoch: int) -> int:
        """The number of the stage of an epoch."""
        return bisect_right([beginning.epoch for beginning in self.began], epoch) - 1

    def rest(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """The batches of an epoch from a position on, each with the position that follows it."""
        epoch, before, after = position[0], self._steps(), position
        self._taken = before
        while position[1:] == (0, 0) and self._is_over(self.stage(epoch), before):
            self._begin(epoch, before, position)
        stage = self.stage(epoch)
        if stage not in self._batches:
            self._batches = {stage: self._make[stage](position)}
        for number, (after, batch) in enumerate(self._batches[stage].rest(position), 1):
            steps, started = divmod(number, self._recipe.accumulated)
            self._taken = before + steps + (started > 0)
            yield after, batch
            if not started and self._is_over(stage, before + steps):
                break
        if self._is_over(stage, self._taken):  # the last step of an epoch may have fewer batches
            self._begin(epoch + 1, self._taken, after)

    def _begin(self, epoch: int, step: int, after: Position) -> None:
        self.began.append(Beginning(epoch, step, self._drawn(after)))
        if self._recipe.rank == 0:
            log.info("stage %s of %s begins after step %s", len(self.began), len(self._make), f"{step:,}")

    def _drawn(self, position: Position) -> dict[str, Sequence[float]]:
        """What the stage of a position has drawn up to there."""
        stage = self.stage(position[0])
        found = self._batches[stage].progress(position) if stage in self._batches else {}
        return {name: (examples, epochs - self.began[stage].epoch) for name, (examples, epochs) in found.items()}

    def drawn(self, position: Position) -> list[tuple[int, Mapping[str, Sequence[float]]]]:
        """For each stage up to a position, its optimizer steps and what it drew."""
        known = self.began[: self.stage(position[0]) + 1]
        ends = [*known[1:], Beginning(step=self._steps(), drawn=self._drawn(position))]
        return [(end.step - start.step, end.drawn) for start, end in zip(known, ends, strict=True)]


class StageValidation:
    """The validation batches as the present stage cuts its examples; none where it cuts as validation does anyway.

    loaders  by number of the stage; stage: the number of the present one
    """

    def __init__(self, loaders: Mapping[int, Any], stage: Callable[[], int]) -> None:
        self._loaders, self._stage = loaders, stage

    def __len__(self) -> int:
        return max(map(len, self._loaders.values()), default=0)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._loaders.get(self._stage(), ()))


def is_over(until: float, steps: int, trainer: pl.Trainer | None) -> bool:
    """Whether a stage is over after so many steps."""
    last = last_step(until, -1 if trainer is None else trainer.max_steps)
    return (share_of_time(trainer) or 0.0) >= until if last is None else steps >= last


def last_step(until: float, max_steps: int) -> int | None:
    """The last step of a stage; None for a share without a number of steps, which is one of `trainer.max_time`."""
    if isinstance(until, int):
        return until
    return round(until * max_steps) if max_steps > 0 else None


def share_of_time(trainer: pl.Trainer | None) -> float | None:
    """The share of `trainer.max_time` that has passed; None without such a limit."""
    if trainer is None:
        return None
    from pytorch_lightning.callbacks import Timer  # takes seconds, which help and a wrong word need not wait for

    timers = [c for c in trainer.callbacks if isinstance(c, Timer)]  # type: ignore[attr-defined]
    left = [(timer.time_elapsed(), timer.time_remaining()) for timer in timers]
    return next((passed / max(passed + rest, 1e-9) for passed, rest in left if rest is not None), None)


def check_clock(what: str, trainer: pl.Trainer, mend: str) -> None:
    """Raises ValueError where a share of `trainer.max_time` cannot be known, or is another in each process."""
    if share_of_time(trainer) is None:
        raise ValueError(f"{what}, and neither is set: {mend}")
    if trainer.world_size > 1:
        raise ValueError(f"{what}, and the clocks of {trainer.world_size} processes differ: {mend}")
