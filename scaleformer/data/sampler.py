"""Batches of a corpus that is kept encoded: its examples, their order, and their division among processes."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing import active_children
from typing import Any, TypeVar

import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info

from scaleformer.batch import Batch
from scaleformer.data.batching import collate, make_batches, make_example, make_rows, share
from scaleformer.data.cutting import Cutting, Ints, Plan, make_plan
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.system.errors import DataError

S = TypeVar("S")
T = TypeVar("T")
GRACE = 60  # seconds
# Segment numbers of a plan, the side without the `<sep>` after each; if consecutive, whether the example continues the
# one before.
Part = tuple[Any, ...]
Position = tuple[int, int, int]  # epoch, its window (kept corpora have one), finished batches of the window


@dataclass(frozen=True)
class Recipe:
    """How documents become the batches of one process.

    cutting, batch_tokens  as in `DataConfig`
    seed                   of cuts, joins and order
    rank, world            which process of how many
    accumulated            batches of one process per training step
    consecutive            keep the examples of a document in one row of consecutive batches; for one process
    """

    cutting: Cutting
    batch_tokens: int
    seed: int
    rank: int = 0
    world: int = 1
    accumulated: int = 1
    consecutive: bool = False

    def rng(self, *key: int) -> np.random.Generator:
        """A generator determined by the seed and the key."""
        return np.random.default_rng((self.seed, *key))


def plan_epoch(corpus: EncodedCorpus, recipe: Recipe, epoch: int) -> tuple[Plan, list[Ints]]:
    """The examples of an epoch, identical in every process, and this process's batches as numbers of examples.

    A pure function of its arguments. All processes have equally many batches, and every example is in one batch of one
    process. In each step W processes see the same examples as one process that accumulates W times as many batches.
    """
    rng = recipe.rng(epoch)
    plan = make_plan(corpus, recipe.cutting, rng)
    return plan, share(epoch_batches(corpus, plan, recipe, rng), recipe.rank, recipe.world)


def epoch_batches(corpus: EncodedCorpus, plan: Plan, recipe: Recipe, rng: np.random.Generator) -> list[Ints]:
    """The batches of all processes in an epoch."""
    if recipe.consecutive:
        return make_rows(plan, documents_of(corpus, plan), recipe.batch_tokens, rng)
    return make_batches(plan, recipe.batch_tokens, rng, recipe.world * recipe.accumulated)


def documents_of(corpus: EncodedCorpus, plan: Plan) -> Ints:
    """(examples,) the document of the first segment of each."""
    return corpus.document_of[plan.order[plan.bounds[:-1]]]


def batch_parts(corpus: EncodedCorpus, plan: Plan, batches: list[Ints], consecutive: bool) -> Iterator[list[Part]]:
    """Batches of an epoch, each a list of the arguments of `make_example` after the corpus."""
    continues = np.empty((len(plan), 0), dtype=bool)  # nothing to say of an example
    if consecutive:
        continues = np.diff(documents_of(corpus, plan), prepend=-1)[:, None] == 0  # (examples, 1)
    for batch in batches:
        yield [(plan.segments(i), *continues[i].tolist()) for i in batch]


class BatchDataset(Dataset[Batch]):
    """Batches of an encoded corpus, given the parts of their examples; DataLoader workers run it too."""

    def __init__(self, corpus: EncodedCorpus) -> None:
        self.corpus = corpus

    def __getitem__(self, batch: list[Part]) -> Batch:
        return collate([make_example(self.corpus, *part) for part in batch])


class KeptBatches:
    """The batches of a corpus that is kept encoded, epoch by epoch, made by `num_workers` workers (0: this process)."""

    def __init__(self, corpus: EncodedCorpus, recipe: Recipe, num_workers: int = 0) -> None:
        self._corpus, self._recipe, self._num_workers = corpus, recipe, num_workers
        self._length = 1  # batches of the latest epoch

    def rest(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """The batches of an epoch from a position on, each with the position that follows it."""
        epoch, _, done = position
        plan, batches = plan_epoch(self._corpus, self._recipe, epoch)
        self._length = max(len(batches), 1)
        parts = batch_parts(self._corpus, plan, batches[done:], self._recipe.consecutive)
        for number, batch in enumerate(batch_loader(self._corpus, parts, self._num_workers), done + 1):
            yield (epoch, 0, number), batch

    def progress(self, position: Position) -> dict[str, tuple[int, float]]:
        """As `MixedBatches.progress`: how often the corpus was read; its examples are not counted."""
        return {"": (0, position[0] + position[2] / self._length)}


class FixedLoader:
    """Yields the same batches in every iteration.

    Not a DataLoader itself: with several processes Lightning would replace its sampler and form other batches.
    """

    def __init__(self, corpus: EncodedCorpus, plan: Plan, batches: Sequence[Ints], num_workers: int = 0) -> None:
        self._count = len(batches)
        self._loader = batch_loader(corpus, [[(plan.segments(i),) for i in batch] for batch in batches], num_workers)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._loader)


def batch_loader(corpus: EncodedCorpus, batches: Any, num_workers: int) -> DataLoader[Any]:
    """A DataLoader over lists of parts of a corpus."""
    return ready_made(BatchDataset(corpus), num_workers, sampler=batches)


def ready_made(items: Dataset[Any], num_workers: int, **options: Any) -> DataLoader[Any]:
    """A DataLoader that passes on the items of a data set unchanged, from `num_workers` workers (0: this process)."""
    options |= {"num_workers": num_workers, "worker_init_fn": deaf}
    return DataLoader(items, batch_size=None, collate_fn=unchanged, **options)


def worked(items: Iterable[S], work: Callable[[S], T]) -> Iterator[T | DataError]:
    """What `work` makes of the items, in a data set for `ready_made`: each worker reads all of them and works on every
    n-th. The loader asks the workers in turn, so that the order does not depend on their number. Bad input is yielded
    as a value: an exception would reach the user with the worker's traceback."""
    worker = get_worker_info()
    own, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
    try:
        yield from map(work, islice(items, own, None, workers))
    except DataError as error:
        yield error


def unchanged(value: Any) -> Any:
    """The identity, for example as `collate_fn` of loaders whose data set yields batches."""
    return value


def deaf(worker: int) -> None:
    """Ignore signals in a worker: they often reach the whole process group, and the parent has to finish and save. The
    first SIGTERM ends the worker after a minute, a second one at once."""
    for name in ("SIGINT", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, _end_later)


@atexit.register
def _end_workers() -> None:
    """When the program ends, which would wait that minute for workers of a loop that failed."""
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler takes their end for a failure
    for process in active_children():
        if process.daemon:
            process.kill()


def _end_later(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(GRACE)
