"""Training batches, epoch after epoch, that go on exactly where a checkpoint was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from scaleformer.batch import Batch
from scaleformer.data.batching import Cutting, Ints, collate, make_batches, make_example, make_plan, share
from scaleformer.data.encoded import EncodedCorpus, encode_documents
from scaleformer.data.formats import Document
from scaleformer.data.tokenizer import Tokenizer, seed_sampling

Position = tuple[int, int]  # epoch, batches of it that are done


def _rng(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def epoch_batches(
    corpus: EncodedCorpus, cutting: Cutting, batch_tokens: int, key: tuple[int, ...], rank: int = 0, world: int = 1
) -> list[list[Ints]]:
    """The batches of an epoch (or window), each a list of examples as segment numbers: a pure function of `key`."""
    rng = _rng(*key)
    plan = make_plan(corpus, cutting, rng)
    batches = share(make_batches(plan, batch_tokens, rng), rank, world)
    return [[plan.segments(i) for i in batch] for batch in batches]


class TokenBatchSampler(Sampler[list[Ints]]):
    """Batches of one epoch after the other, from where it stands; pure functions of (seed, epoch).

    Iterating gives the rest of the present epoch, then steps to the next one.
    """

    def __init__(
        self, corpus: EncodedCorpus, cutting: Cutting, batch_tokens: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        self.corpus = corpus
        self.cutting = cutting
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.rank = rank
        self.world = world
        self.epoch = 0
        self.done = 0

    def __iter__(self) -> Iterator[list[Ints]]:
        batches = epoch_batches(
            self.corpus, self.cutting, self.batch_tokens, (self.seed, self.epoch), self.rank, self.world
        )
        for batch in batches[self.done :]:
            self.done += 1
            yield batch
        self.epoch, self.done = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Epoch and number of its batches that were handed out."""
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.done = state["epoch"], state["done"]


class BatchDataset(Dataset[Batch]):
    """Batches of an encoded corpus by their segment numbers; also what the processes of a DataLoader run."""

    def __init__(self, corpus: EncodedCorpus) -> None:
        self.corpus = corpus

    def __getitem__(self, batch: list[Ints]) -> Batch:
        return collate([make_example(self.corpus, segments) for segments in batch])


def document_windows(documents: Iterable[Document], segments: int) -> Iterator[list[Document]]:
    """Documents in lists of at least that many segments (the last list may hold fewer)."""
    window: list[Document] = []
    count = 0
    for document in documents:
        window.append(document)
        count += len(document.source)
        if count >= segments:
            yield window
            window, count = [], 0
    if window:
        yield window


class StreamedBatches(IterableDataset[Batch]):
    """Batches of one epoch, made from documents that are read and encoded on the way, a window at a time.

    Every window is cut, joined, sorted and shuffled like a corpus of its own. A sequence of documents is shuffled over
    all windows, a stream keeps its order of windows. To go on inside an epoch it is read and encoded again up to there,
    without being trained on.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        tokenizers: tuple[Tokenizer, Tokenizer],
        cutting: Cutting,
        batch_tokens: int,
        seed: int,
        window: int,
        sample_alpha: float = 0.0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.documents = documents
        self.tokenizers = tokenizers
        self.cutting = cutting
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.window = window
        self.sample_alpha = sample_alpha
        self.rank = rank
        self.world = world
        self.epoch = 0
        self.done = 0

    def __iter__(self) -> Iterator[Batch]:
        epoch, skip = self.epoch, self.done
        for number, documents in enumerate(self._windows(epoch)):
            corpus = self._encode(documents, epoch, number)
            key = (self.seed, epoch, number)
            for batch in epoch_batches(corpus, self.cutting, self.batch_tokens, key, self.rank, self.world):
                if skip > 0:
                    skip -= 1
                else:
                    yield collate([make_example(corpus, segments) for segments in batch])

    def _windows(self, epoch: int) -> Iterator[list[Document]]:
        documents = self.documents
        if isinstance(documents, Sequence):
            order = _rng(self.seed, epoch).permutation(len(documents)).tolist()
            return document_windows((documents[i] for i in order), self.window)
        return document_windows(documents, self.window)

    def _encode(self, documents: list[Document], epoch: int, window: int) -> EncodedCorpus:
        if self.sample_alpha == 0:
            return encode_documents(documents, *self.tokenizers)

        def seed(document: int) -> None:
            state = np.random.SeedSequence((self.seed, epoch, window, document)).generate_state(1)
            seed_sampling(int(state[0]))

        return encode_documents(documents, *self.tokenizers, sample=seed, alpha=self.sample_alpha)


class TrainLoader:
    """Iterating gives the batches of one epoch; the next time those of the next.

    It has no length: with cuts drawn anew, epochs differ in their number of batches. Iterating starts after the last
    batch that was trained on, as `trained` counts them (a trainer fetches ahead, so handing out is not training).
    """

    def __init__(
        self,
        batches: TokenBatchSampler | StreamedBatches,
        num_workers: int = 0,
        start: Position = (0, 0),
        trained: Callable[[], int] | None = None,
    ) -> None:
        self.batches = batches
        self._handed_out = 0
        self._count_trained = trained
        self._starts: list[tuple[int, Position]] = []  # batches trained on when an epoch (or this run) began, and where
        self._first = start
        if isinstance(batches, TokenBatchSampler):
            self._loader: DataLoader[Any] = DataLoader(
                BatchDataset(batches.corpus),
                sampler=batches,
                batch_size=None,
                collate_fn=_unchanged,
                num_workers=num_workers,
            )
        else:
            # One process at most: a second one would read the same stream.
            self._loader = DataLoader(batches, batch_size=None, collate_fn=_unchanged, num_workers=min(num_workers, 1))

    def _trained(self) -> int:
        return self._handed_out if self._count_trained is None else self._count_trained()

    @property
    def position(self) -> Position:
        """Epoch, and the number of its batches that were trained on."""
        if not self._starts:
            return self._first
        trained = self._trained()
        count, (epoch, done) = next(start for start in reversed(self._starts) if start[0] <= trained)
        return epoch, done + trained - count

    def __iter__(self) -> Iterator[Batch]:
        if not self._starts:
            self._starts.append((self._trained(), self._first))
        epoch, done = self.position
        count = self._trained()
        self._starts = [(count, (epoch, done))]
        while True:
            before = count
            self.batches.epoch, self.batches.done = epoch, done
            for batch in self._loader:
                count += 1
                self._handed_out += 1
                yield batch
            nothing_left = done > 0 and count == before  # it stood behind the last batch of an epoch
            epoch, done = epoch + 1, 0
            self._starts.append((count, (epoch, done)))
            if not nothing_left:
                return


class FixedLoader:
    """The same batches each time it is iterated.

    Not a DataLoader itself: Lightning would put its own sampler into one when several processes train, and cut the
    batches anew.
    """

    def __init__(self, corpus: EncodedCorpus, batches: list[list[Ints]], num_workers: int = 0) -> None:
        self._count = len(batches)
        self._loader: DataLoader[Any] = DataLoader(
            BatchDataset(corpus), sampler=batches, batch_size=None, collate_fn=_unchanged, num_workers=num_workers
        )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._loader)


def _unchanged(batch: Any) -> Any:
    """The `collate_fn` of loaders whose data set gives batches."""
    return batch
