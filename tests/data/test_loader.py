"""Epochs of batches: pure functions of (seed, epoch), and resuming in the middle of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from scaleformer.batch import Batch
from scaleformer.data.cutting import Cutting, make_plan
from scaleformer.data.encoded import encode_documents
from scaleformer.data.loader import TrainLoader
from scaleformer.data.report import count_split
from scaleformer.data.sampler import KeptBatches, Recipe
from scaleformer.data.streaming import Counted, EncodedWindows, StreamedBatches
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from tests.data.toy import encoded, random_corpus
from tests.pairwise import covering

DOCUMENTS = list(generate(SyntheticConfig(train=60), "train"))
CUTTING = Cutting(50, multi_resolution=True)


@pytest.fixture(scope="module")
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    tokenizer = Tokenizer.train([t for d in DOCUMENTS for t in (*d.source, *d.target)], 500)
    return tokenizer, tokenizer


def recipe(seed: int = 1, **options: Any) -> Recipe:
    return Recipe(CUTTING, 300, seed, **options)


def kept(**options: Any) -> KeptBatches:
    return KeptBatches(random_corpus(0), recipe(), **options)


def windows(tokenizers: tuple[Tokenizer, Tokenizer], documents: Any = DOCUMENTS, **options: Any) -> EncodedWindows:
    return EncodedWindows(documents, tokenizers, recipe(**options), 60)


class Stream:
    """Documents that can only be iterated: those of one of `world` processes."""

    def __init__(self, rank: int = 0, world: int = 1, count: int = len(DOCUMENTS)) -> None:
        self.documents = DOCUMENTS[:count][rank::world]

    def __iter__(self) -> Any:
        return iter(self.documents)


def names(loader: TrainLoader) -> list[tuple[str, ...]]:
    return [batch.ids for batch in loader]


def text_pairs(batches: list[Batch], tokenizer: Tokenizer) -> list[tuple[str, str]]:
    found = []
    for batch in batches:
        for row in range(len(batch.ids)):
            sides = [tokenizer.decode_segments(side[row].tolist()) for side in (batch.source, batch.target_output)]
            found += list(zip(*sides, strict=True))
    return sorted(found)


def pairs_of(documents: list[Document]) -> list[tuple[str, str]]:
    return sorted(pair for d in documents for pair in zip(d.source, d.target, strict=True))


def test_streamed_epochs(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    loader = TrainLoader(StreamedBatches(windows(tokenizers, Stream())))
    epochs = [list(loader) for _ in range(2)]
    assert [b.ids for b in epochs[0]] != [b.ids for b in epochs[1]]
    for epoch in epochs:
        for batch in epoch:
            assert batch.source.numel() + batch.target_output.numel() <= 300 or len(batch) == 1
        assert text_pairs(epoch, tokenizers[0]) == pairs_of(DOCUMENTS)
    again = TrainLoader(StreamedBatches(windows(tokenizers, Stream())))
    assert all(np.array_equal(a.source, b.source) for a, b in zip(epochs[0], again, strict=True))


def test_streams_keep_their_order(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    encoded_ids = [name for corpus in windows(tokenizers, Stream()) for name in corpus.ids]
    assert encoded_ids == [d.id for d in DOCUMENTS]


class Meeting:
    """Threads that show each other values, as processes do by an all-gather."""

    def __init__(self, world: int) -> None:
        self.barrier = threading.Barrier(world, timeout=60)
        self.values: list[Any] = [None] * world

    def exchange(self, rank: int) -> Callable[[Any], list[Any]]:
        def gather(value: Any) -> list[Any]:
            self.values[rank] = value
            self.barrier.wait()
            found = list(self.values)
            self.barrier.wait()
            return found

        return gather


def together(world: int, run: Callable[[int, Callable[[Any], list[Any]]], list[Batch]]) -> list[list[Batch]]:
    """The epoch of each of some processes, side by side."""
    meeting, found = Meeting(world), [[] for _ in range(world)]  # type: ignore[var-annotated]

    def one(rank: int) -> None:
        found[rank] = run(rank, meeting.exchange(rank))

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(("world", "count"), [(2, 60), (3, 60), (3, 2)], ids=["2", "3", "3 for 2 documents"])
def test_streamed_epochs_of_processes(tokenizers: tuple[Tokenizer, Tokenizer], world: int, count: int) -> None:
    def loader(rank: int, exchange: Callable[[Any], list[Any]], start: tuple[int, int, int] = (1, 0, 0)) -> TrainLoader:
        own = windows(tokenizers, Stream(rank, world, count), rank=rank, world=world)
        return TrainLoader(StreamedBatches(own, 0, exchange), start)

    parts = together(world, lambda rank, exchange: list(loader(rank, exchange)))
    assert len({len(part) for part in parts}) == 1
    everything = [batch for part in parts for batch in part]
    assert text_pairs(everything, tokenizers[0]) == pairs_of(DOCUMENTS[:count])
    for batch in everything:
        assert bool(batch.ids) == bool(batch.target_mask.any())

    positions: list[tuple[int, int, int]] = [(0, 0, 0)] * world
    done = len(parts[0]) // 2

    def half(rank: int, exchange: Callable[[Any], list[Any]]) -> list[Batch]:
        own = loader(rank, exchange)
        batches = list(islice(own, done))
        positions[rank] = own.position
        return batches

    together(world, half)
    assert len(set(positions)) == 1
    rest = together(world, lambda rank, exchange: list(loader(rank, exchange, positions[0])))
    assert [[b.ids for b in part] for part in rest] == [[b.ids for b in part[done:]] for part in parts]


@covering(workers=[0, 1, 2], kind=["kept", "streamed"], done={"inside": 3, "behind the last": 10_000})
def test_loader_resumes(tokenizers: tuple[Tokenizer, Tokenizer], kind: str, workers: int, done: int) -> None:
    def loader(workers: int = 0, **options: Any) -> TrainLoader:
        if kind == "kept":
            return TrainLoader(kept(num_workers=workers), **options)
        return TrainLoader(StreamedBatches(windows(tokenizers), workers), **options)

    whole = loader()
    first = names(whole)
    epoch = whole.position[0]
    positions, second = [whole.position], []
    for batch in whole:
        second.append(batch.ids)
        positions.append(whole.position)
    third = names(whole)
    assert epoch == 1
    assert first
    start = min(done, len(second))
    rest = loader(workers, start=positions[start])
    assert rest.position == positions[start]
    assert names(rest) == (second[start:] or third)


def test_loader_counts_what_was_trained_on_not_what_was_handed_out() -> None:
    trained = 0
    loader = TrainLoader(kept(), trained=lambda: trained)
    epoch = names(TrainLoader(kept()))
    ahead = iter(loader)
    handed_out = [next(ahead).ids for _ in range(4)]
    trained = 3
    assert loader.position == (0, 0, 3)
    assert handed_out + [batch.ids for batch in ahead] == epoch
    assert loader.position == (0, 0, 3)
    trained = len(epoch)
    assert loader.position == (1, 0, 0)


def test_a_new_iterator_starts_after_the_last_trained_batch() -> None:
    trained = 0
    loader = TrainLoader(kept(), trained=lambda: trained)
    epoch = names(TrainLoader(kept()))
    next(iter(loader))
    second = iter(loader)
    assert [next(second).ids for _ in range(3)] == epoch[:3]
    trained = 2
    assert names(loader) == epoch[2:]


def test_loader_has_no_length() -> None:
    assert not hasattr(TrainLoader(kept()), "__len__")


def test_an_epoch_without_examples_is_an_error() -> None:
    corpus = encoded([[(1, 9)], [(9, 2)]])
    loader = TrainLoader(KeptBatches(corpus, Recipe(Cutting(50, max_ratio=2.0), 300, 1)))
    with pytest.raises(DataError, match=r"has no training example: .* data\.max_ratio"):
        names(loader)


class Broken:
    """A stream with a fault in it."""

    def __iter__(self) -> Any:
        yield from DOCUMENTS[:20]
        raise DataError("train.jsonl:21: not valid JSON")


@pytest.mark.parametrize("workers", [0, 2])
def test_faults_of_a_stream_reach_the_user_unchanged(tokenizers: tuple[Tokenizer, Tokenizer], workers: int) -> None:
    loader = TrainLoader(StreamedBatches(windows(tokenizers, Broken()), workers))
    with pytest.raises(DataError, match=r"^train\.jsonl:21: not valid JSON$"):
        names(loader)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("stop", [None, 9], ids=["in one go", "interrupted"])
def test_streamed_windows_are_counted_once(
    tokenizers: tuple[Tokenizer, Tokenizer], world: int, stop: int | None
) -> None:
    """Window by window, and not again by those who go on inside a window, nor in the second epoch."""
    cutting = Cutting(40, max_ratio=1.3)
    found: list[Counted] = [Counted()] * world

    def half(rank: int, exchange: Callable[[Any], list[Any]]) -> list[Batch]:
        batches, position = [], (0, 0, 0)
        for epoch in range(2):
            while position[0] == epoch:  # resumes there with new objects, as after a kill
                parts = replace(recipe(rank=rank, world=world), cutting=cutting)
                own = EncodedWindows(Stream(rank, world), tokenizers, parts, 60)
                counted = Counted.from_dict(found[rank].to_dict())
                loader = TrainLoader(StreamedBatches(own, 0, exchange, counted), position)
                batches += list(islice(loader, stop))
                position, found[rank] = loader.position, counted
        return batches

    trained = together(world, half)
    assert found == [found[0]] * world
    assert (found[0].windows > 2, found[0].whole) == (True, True)
    counts = found[0].counts
    whole = encode_documents(DOCUMENTS, *tokenizers)
    expected = count_split(whole, make_plan(whole, cutting, recipe().rng(0)), replace(recipe(), cutting=cutting))
    ours = replace(counts, batches=0, positions=0, places=0)
    assert ours == expected
    assert expected.dropped["length ratio"] > 0
    sizes = [batch.source_mask.numel() + batch.target_mask.numel() for part in trained for batch in part if batch.ids]
    assert 0.9 < 2 * counts.positions / sum(sizes) < 1.1
    assert counts.places >= counts.positions >= counts.tokens
