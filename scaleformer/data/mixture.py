"""Batches from several corpora, each with a fixed share of the examples; a corpus starts again when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scaleformer.batch import Batch
from scaleformer.data.batching import Example, collate, make_batches, make_example
from scaleformer.data.cutting import Ints, Plan, make_plan
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.data.sampler import FixedLoader, Position, Recipe, ready_made
from scaleformer.data.streaming import EncodedWindows, in_step
from scaleformer.system.errors import DataError

_REMEMBERED = 8  # rounds; a trainer lags behind the handed-out batches by one or two
log = logging.getLogger(__name__)
Everywhere = Callable[[Any], list[Any]]


class Place(NamedTuple):
    """The position of one process in one corpus.

    passes  number of complete passes
    window  current window of the current pass; `used` is the number of its examples already drawn
    drawn   examples drawn in all
    """

    passes: int = 0
    window: int = 0
    used: int = 0
    drawn: int = 0


class Drawn(NamedTuple):
    """Examples of one corpus, by their numbers in the plan of this pass."""

    corpus: EncodedCorpus
    plan: Plan
    examples: Ints

    def example(self, number: int) -> Example:
        return make_example(self.corpus, self.plan.segments(int(self.examples[number])))


class Passes:
    """The examples of one corpus for one process, in random order, pass after pass.

    A corpus that is kept encoded is one window, whose examples are divided among the processes. If a corpus is encoded
    during training, each process has its own windows, encoded by `num_workers` workers.
    """

    def __init__(
        self, name: str, share: float, windows: EncodedCorpus | EncodedWindows, recipe: Recipe, num_workers: int = 0
    ) -> None:
        self.name = name
        self.share = share
        self.kept = isinstance(windows, EncodedCorpus)
        self.place = Place()
        self._corpus = windows
        self._recipe = recipe
        self._loader = ready_made(windows, num_workers) if isinstance(windows, EncodedWindows) else None
        self._coming: Iterator[EncodedCorpus | DataError] | None = None  # the remaining windows of this pass
        self._window: Drawn | None = None  # the current window, its examples shuffled
        self._empty = True  # whether this pass has had no example so far

    def go_to(self, place: Place) -> None:
        """Move to another position."""
        self.place = place
        self._coming = self._window = None
        self._empty = place.window == 0

    def stop(self) -> None:
        """End the workers; `go_to` comes next."""
        self._coming = None

    @property
    def left(self) -> int:
        """Examples of the current window that are not drawn yet."""
        return 0 if self._window is None else len(self._window.examples) - self.place.used

    @property
    def read(self) -> float:
        """How often the corpus was read, the current pass as a fraction; whole passes only if encoded in training."""
        window = self._window if self.kept else None
        return self.place.passes + (self.place.used / len(window.examples) if window and len(window.examples) else 0)

    def refill(self) -> None:
        """Make at least one example available: when the window is used up, open the next one or start a new pass.
        Raises DataError if a whole pass has no example, and like the readers."""
        while not self.left:
            if self._window is not None:
                self.place = self.place._replace(window=self.place.window + 1, used=0)
                self._window = None
            if self._coming is None:
                self._coming = self._open()
            corpus = next(self._coming, None)
            if isinstance(corpus, DataError):
                raise corpus
            if corpus is not None:
                self._window = self._shuffled(corpus)
                self._empty &= not len(self._window.examples)
            elif self._empty:
                rank, world = self._recipe.rank, self._recipe.world
                whose = f" of process {rank} of {world}" if world > 1 else ""
                raise DataError(
                    f"data.corpora.{self.name}: the whole epoch{whose} has no training example: the training split has "
                    "too few documents, or data.max_ratio leaves all of them out"
                )
            else:
                self.place = Place(self.place.passes + 1, drawn=self.place.drawn)
                self._coming, self._empty = None, True

    def _open(self) -> Iterator[EncodedCorpus | DataError]:
        if isinstance(self._corpus, EncodedCorpus):
            return iter([self._corpus][self.place.window :])
        assert self._loader is not None
        self._corpus.epoch, self._corpus.first = self.place.passes, self.place.window
        return iter(self._loader)

    def _shuffled(self, corpus: EncodedCorpus) -> Drawn:
        recipe, place = self._recipe, self.place
        rng = recipe.rng(place.passes, *(() if self.kept else (recipe.rank, place.window)))
        plan = make_plan(corpus, recipe.cutting, rng)
        order = rng.permutation(len(plan))
        if self.kept and len(plan) >= recipe.world:  # else every process takes all examples
            order = order[recipe.rank :: recipe.world]
        return Drawn(corpus, plan, order)

    def take(self, count: int) -> list[Drawn]:
        """The next `count` examples, across windows and passes if needed."""
        found = []
        while count > 0:
            self.refill()
            assert self._window is not None
            used = self.place.used
            chosen = self._window.examples[used : used + count]
            count -= len(chosen)
            self.place = self.place._replace(used=used + len(chosen), drawn=self.place.drawn + len(chosen))
            found.append(self._window._replace(examples=chosen))
        return found


class MixedBatches:
    """Batches from several corpora, round after round. A round is cut, sorted and shuffled like one corpus.

    In a round every corpus has its share of the examples, to within one example. Without streaming a round is an epoch:
    the corpus that lasts longest is read once, the others as often as their shares require. If corpora are encoded
    during training, a round ends when the current window of one of them ends. An epoch ends with the round in which
    every process has finished every corpus once more.

    exchange  gathers a value from every process, by rank
    start     the starting position; `places` holds the places of all processes there, by rank and corpus. None: the
              epoch starts at the beginning of every corpus
    """

    def __init__(
        self,
        corpora: Sequence[Passes],
        recipe: Recipe,
        exchange: Everywhere = lambda value: [value],
        start: Position = (0, 0, 0),
        places: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> None:
        self._corpora = corpora
        self._recipe = recipe
        self._exchange = exchange
        fresh = [[Place(passes=start[0])] * len(corpora)] * recipe.world
        known = fresh if places is None else [[Place(*place) for place in own] for own in places]
        # By epoch and round: the places of all processes before the round, how often each corpus had been read by then,
        # and (batches + 1, corpora) the examples that all processes have drawn after each number of batches.
        self._rounds: dict[tuple[int, int], tuple[list[list[Place]], Any, Any]] = {}
        self._remember(start[:2], known, [float(place.passes) for place in known[recipe.rank]])
        self._stands: tuple[int, int] | None = None  # the round that the corpora will read next
        self._said: list[int] | None = None  # complete passes of each corpus at the last check

    def rest(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """The batches of an epoch from a position on, each with the position that follows it."""
        try:
            yield from self._rest(*position)
        except BaseException:  # the garbage collector would wait ten seconds for each worker of a loop that is left
            self._stands = None
            for corpus in self._corpora:
                corpus.stop()
            raise

    def _rest(self, epoch: int, number: int, done: int) -> Iterator[tuple[Position, Batch]]:
        if self._stands != (epoch, number):
            for corpus, place in zip(self._corpora, self._rounds[epoch, number][0][self._recipe.rank], strict=True):
                corpus.go_to(place)
        while True:
            self._refill()
            places, _, drawn = self._rounds[epoch, number]
            self._rounds[epoch, number] = places, [corpus.read for corpus in self._corpora], drawn
            if min(self._exchange(min(corpus.place.passes for corpus in self._corpora))) > epoch:
                self._rounds[epoch + 1, 0] = self._rounds[epoch, number]
                self._stands = epoch + 1, 0
                return
            parts, batches = self._round(epoch, number)
            self._stands = epoch, number + 1
            starts = np.cumsum([0, *(len(part.examples) for part in parts)])
            for i, batch in enumerate(batches[done:], done + 1):
                examples = []
                for j in batch.tolist():
                    n = int(np.searchsorted(starts, j, "right")) - 1
                    examples.append(parts[n].example(j - starts[n]))
                yield (epoch, number, i) if i < len(batches) else (epoch, number + 1, 0), collate(examples)
            number, done = number + 1, 0

    def places(self, position: Position) -> list[list[list[int]]]:
        """The places of all processes and corpora before the round of a position: enough to resume there."""
        return [[list(place) for place in own] for own in self._rounds[position[:2]][0]]

    def progress(self, position: Position) -> dict[str, tuple[int, float]]:
        """For each corpus, the examples that all processes have drawn up to a position and how often it was read;
        interpolated within a round."""
        places, read, drawn = self._rounds[position[:2]]
        before = np.sum([[place.drawn for place in own] for own in places], axis=0)
        if position[2] and drawn is not None:
            after, share = self._rounds[position[0], position[1] + 1][1], position[2] / (len(drawn) - 1)
            before = before + drawn[position[2]]
            read = [a + (b - a) * share for a, b in zip(read, after, strict=True)]
        return {c.name: (int(n), float(r)) for c, n, r in zip(self._corpora, before, read, strict=True)}

    def _refill(self) -> None:
        for corpus in self._corpora:
            corpus.refill()
        passes = [corpus.place.passes for corpus in self._corpora]
        if self._said is not None and self._said != passes and self._recipe.rank == 0:
            whole = ", ".join(f"{corpus.name} {n:,}" for corpus, n in zip(self._corpora, passes, strict=True))
            log.info("starting again with a corpus; complete passes so far: %s", whole)
        self._said = passes

    def _round(self, epoch: int, number: int) -> tuple[list[Drawn], list[Ints]]:
        recipe, quotas = self._recipe, self._quotas(epoch)
        drawn = [corpus.take(quota) for corpus, quota in zip(self._corpora, quotas, strict=True)]
        parts = [part for own in drawn for part in own]
        plan = _lengths(parts)
        batches = make_batches(plan, recipe.batch_tokens, recipe.rng(epoch, recipe.rank, number))
        count = max(self._exchange(len(batches)))
        batches = in_step(plan, batches, count, recipe, epoch, number)
        ends = np.cumsum([sum(len(part.examples) for part in own) for own in drawn])
        counts = [np.bincount(np.searchsorted(ends, b, "right"), minlength=len(ends)) for b in batches]
        everywhere = self._exchange((np.cumsum(counts, axis=0), [corpus.place for corpus in self._corpora]))
        summed = np.concatenate((np.zeros((1, len(ends)), np.int64), sum(own for own, _ in everywhere)))
        places, read, _ = self._rounds[epoch, number]
        self._rounds[epoch, number] = places, read, summed
        self._remember((epoch, number + 1), [own for _, own in everywhere], [corpus.read for corpus in self._corpora])
        return parts, batches

    def _quotas(self, epoch: int) -> list[int]:
        """How many examples of each corpus form a round."""
        # The ends of the current windows, counted in examples of all corpora.
        ends = [(corpus.place.drawn + corpus.left) / corpus.share for corpus in self._corpora]
        windows = [end for end, corpus in zip(ends, self._corpora, strict=True) if not corpus.kept]
        passes = [e for e, c in zip(ends, self._corpora, strict=True) if c.kept and c.place.passes <= epoch]
        nearest = [choose(some) for choose, some in ((max, passes), (min, windows)) if some]
        end = min(nearest, default=max(ends))
        return [round(corpus.share * end) - corpus.place.drawn for corpus in self._corpora]

    def _remember(self, key: tuple[int, int], places: list[list[Place]], read: list[float]) -> None:
        self._rounds[key] = places, read, None
        while len(self._rounds) > _REMEMBERED:
            del self._rounds[next(iter(self._rounds))]


class JoinedLoader:
    """The batches of several loaders, one after the other, each with the name of its corpus."""

    def __init__(self, loaders: Mapping[str, FixedLoader]) -> None:
        self._loaders = loaders

    def __len__(self) -> int:
        return sum(map(len, self._loaders.values()))

    def __iter__(self) -> Iterator[Batch]:
        for name, loader in self._loaders.items():
            yield from (replace(batch, corpus=name) for batch in loader)


def _lengths(parts: Sequence[Drawn]) -> Plan:
    """A plan with only the lengths of all examples."""
    none = np.zeros(0, dtype=np.int64)
    sides = [[part.plan.source_lengths[part.examples] for part in parts]]
    sides.append([part.plan.target_lengths[part.examples] for part in parts])
    source, target = (np.concatenate(side) for side in sides)
    return Plan(none, np.arange(len(source) + 1), source, target)
