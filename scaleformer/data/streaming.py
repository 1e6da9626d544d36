"""Batches of documents that are read and encoded during training, window by window, by all processes and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset

from scaleformer.batch import Batch
from scaleformer.data.batching import collate, fill, make_batches, make_example, padded_sizes
from scaleformer.data.cutting import Ints, Plan, make_plan
from scaleformer.data.encoded import EncodedCorpus, encode_documents
from scaleformer.data.report import SplitReport, count_split
from scaleformer.data.sampler import Position, Recipe, ready_made, worked
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document


def document_windows(documents: Iterable[Document], segments: int) -> Iterator[list[Document]]:
    """Documents in lists of at least that many segments (the last list may have fewer)."""
    window: list[Document] = []
    count = 0
    for document in documents:
        window.append(document)
        count += len(document.shapes)
        if count >= segments:
            yield window
            window, count = [], 0
    if window:
        yield window


@dataclass(eq=False)
class EncodedWindows(IterableDataset[EncodedCorpus | DataError]):
    """One epoch of a process's documents, encoded window by window (`worked`), starting at window `first` of epoch
    `epoch`. The documents keep their order, and are this process's alone."""

    documents: Iterable[Document]
    tokenizers: tuple[Tokenizer, Tokenizer]
    recipe: Recipe
    segments: int
    changes: Callable[[Document, int], Document] | None = None
    tag: int | None = None
    epoch: int = 0
    first: int = 0

    def __iter__(self) -> Iterator[EncodedCorpus | DataError]:
        return worked(islice(document_windows(self.documents, self.segments), self.first, None), self._encoded)

    def _encoded(self, documents: list[Document]) -> EncodedCorpus:
        if self.changes is not None:
            documents = [self.changes(document, self.epoch) for document in documents]
        return replace(encode_documents(documents, *self.tokenizers), tag=self.tag)


@dataclass
class Counted:
    """The counts of all processes in the first windows of an epoch.

    whole  whether the epoch has no more windows
    epoch  the counted epoch: the first with the current data and settings
    """

    windows: int = 0
    whole: bool = False
    counts: SplitReport = field(default_factory=SplitReport)
    epoch: int = 0

    @property
    def name(self) -> str:
        """The counted split, or part of it."""
        part = f"{self.windows} windows" if self.windows > 1 else "window"
        return "train" if self.whole else f"train (first {part})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Counted:
        """The inverse of `to_dict`."""
        return cls(**{**values, "counts": SplitReport(**values["counts"])})


class StreamedBatches:
    """Batches of encoded windows; every window is cut, joined, sorted and shuffled like a separate corpus.

    num_workers  processes that read and encode; they affect only the speed
    exchange     gathers a value from every process, by rank. A process with fewer batches in the current window than
                 another halves some of its own; one without a window left takes part with fillers
    counted      the counts so far; later windows are added

    When training resumes within an epoch, the earlier documents are read again, but neither encoded nor trained on.
    """

    def __init__(
        self,
        windows: EncodedWindows,
        num_workers: int = 0,
        exchange: Callable[[Any], list[Any]] = lambda value: [value],
        counted: Counted | None = None,
    ) -> None:
        self._windows = windows
        self._exchange = exchange
        self.counted = counted or Counted()
        self._loader = ready_made(windows, num_workers)

    def rest(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        """The batches of an epoch from a position on, each with the position that follows it."""
        epoch, number, done = position
        self._windows.epoch, self._windows.first = epoch, number
        windows = iter(self._loader)
        while True:
            corpus = next(windows, None)
            if isinstance(corpus, DataError):
                raise corpus
            plan, batches = (None, []) if corpus is None else self._batches(corpus, epoch, number)
            count = max(self._exchange(-1 if corpus is None else len(batches)))
            if count < 0:
                self.counted.whole |= (epoch, number) == (self.counted.epoch, self.counted.windows)
                return
            batches = in_step(plan, batches, count, self._windows.recipe, epoch, number)
            if (epoch, number) == (self.counted.epoch, self.counted.windows):
                self._count(corpus, plan, batches)
            for i, batch in enumerate(batches[done:], done + 1):
                examples = [make_example(corpus, plan.segments(j)) for j in batch] if corpus and plan else []
                yield (epoch, number, i) if i < count else (epoch, number + 1, 0), collate(examples)
            number, done = number + 1, 0

    def _batches(self, corpus: EncodedCorpus, epoch: int, window: int) -> tuple[Plan, list[Ints]]:
        recipe = self._windows.recipe
        rng = recipe.rng(epoch, recipe.rank, window)
        plan = make_plan(corpus, recipe.cutting, rng)
        return plan, make_batches(plan, recipe.batch_tokens, rng)

    def _count(self, corpus: EncodedCorpus | None, plan: Plan | None, batches: list[Ints]) -> None:
        counts, sizes = SplitReport(), [0] * len(batches)
        if corpus is not None and plan is not None:
            counts, sizes = count_split(corpus, plan, self._windows.recipe), padded_sizes(plan, batches).tolist()
        everywhere = self._exchange((counts, sizes))
        window = sum((own for own, _ in everywhere), SplitReport()).with_batches([own for _, own in everywhere])
        self.counted.counts += window
        self.counted.windows += 1


def in_step(plan: Plan | None, batches: list[Ints], count: int, recipe: Recipe, epoch: int, window: int) -> list[Ints]:
    """`count` batches of the same examples, each about as large as the other processes' batch of the same step."""
    if recipe.world == 1:
        return batches
    batches = fill(batches, count)
    if plan is None:
        return batches
    ranking = np.argsort(-padded_sizes(plan, batches), kind="stable")
    return [batches[i] for i in ranking[recipe.rng(epoch, window).permutation(count)]]
