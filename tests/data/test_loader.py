"""Epochs of batches: pure functions of (seed, epoch), and going on in the middle of one."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from scaleformer.data.batching import Cutting
from scaleformer.data.formats import Document
from scaleformer.data.loader import StreamedBatches, TokenBatchSampler, TrainLoader, epoch_batches
from scaleformer.data.synthetic import SyntheticConfig, generate
from scaleformer.data.tokenizer import Tokenizer
from tests.data.toy import encoded, random_corpus

DOCUMENTS = list(generate(SyntheticConfig(train=60), "train"))
CUTTING = Cutting(50, multi_resolution=True)
Batches = list[list[list[int]]]


@pytest.fixture(scope="module")
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    tokenizer = Tokenizer.train([t for d in DOCUMENTS for t in (*d.source, *d.target)], 500)
    return tokenizer, tokenizer


def sampler(seed: int = 1, **options: Any) -> TokenBatchSampler:
    return TokenBatchSampler(random_corpus(0), CUTTING, 300, seed, **options)


def plain(batches: Any) -> Batches:
    return [[segments.tolist() for segments in batch] for batch in batches]


def segments(batches: Batches) -> list[int]:
    return sorted(i for batch in batches for example in batch for i in example)


def test_epochs_of_the_sampler() -> None:
    one = sampler()
    epochs = [plain(one) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    for epoch in epochs:
        assert segments(epoch) == list(range(random_corpus(0).segments))
    again = sampler()
    assert [plain(again) for _ in range(3)] == epochs
    assert plain(sampler(seed=2)) != epochs[0]
    assert one.state_dict() == {"epoch": 3, "done": 0}


@pytest.mark.parametrize("done", [0, 1, 7])
def test_sampler_goes_on_with_the_remaining_batches(done: int) -> None:
    whole = sampler()
    epochs = [plain(whole) for _ in range(2)]
    first = sampler()
    plain(first)
    taken = plain(islice(iter(first), done))
    second = sampler()
    second.load_state_dict(first.state_dict())
    assert taken == epochs[1][:done]
    assert plain(second) == epochs[1][done:]
    assert second.state_dict() == {"epoch": 2, "done": 0}


def test_processes_share_an_epoch() -> None:
    whole = plain(sampler())
    parts = [plain(sampler(rank=rank, world=2)) for rank in range(2)]
    assert len(parts[0]) == len(parts[1]) == (len(whole) + 1) // 2
    assert parts[0] == whole[::2]
    assert segments(parts[0] + parts[1][: len(whole) // 2]) == segments(whole)


def test_epoch_batches_keep_the_budget() -> None:
    corpus = random_corpus(3)
    for batch in epoch_batches(corpus, CUTTING, 200, (1, 0)):
        sides = (corpus.source_lengths, corpus.target_lengths)
        longest = [max(int(side[example].sum()) + 1 for example in batch) for side in sides]
        assert len(batch) * sum(longest) <= 200 or len(batch) == 1


def streamed(tokenizers: tuple[Tokenizer, Tokenizer], documents: Any = DOCUMENTS, **options: Any) -> StreamedBatches:
    return StreamedBatches(documents, tokenizers, CUTTING, 300, 1, **{"window": 60, **options})


class Stream:
    """Documents that can only be iterated."""

    def __iter__(self) -> Any:
        return iter(DOCUMENTS)


def names(loader: TrainLoader) -> list[tuple[str, ...]]:
    return [batch.ids for batch in loader]


@pytest.mark.parametrize("documents", [DOCUMENTS, Stream()], ids=["sequence", "stream"])
@pytest.mark.parametrize("alpha", [0.0, 0.2], ids=["best pieces", "sampled pieces"])
def test_streamed_epochs(tokenizers: tuple[Tokenizer, Tokenizer], documents: Any, alpha: float) -> None:
    loader = TrainLoader(streamed(tokenizers, documents, sample_alpha=alpha))
    epochs = [list(loader) for _ in range(2)]
    assert [b.ids for b in epochs[0]] != [b.ids for b in epochs[1]]
    wanted = sorted(zip_segments(DOCUMENTS))
    for epoch in epochs:
        found = []
        for batch in epoch:
            assert batch.source.numel() + batch.target_output.numel() <= 300 or len(batch) == 1
            for row in range(len(batch)):
                sides = [
                    tokenizers[0].decode_segments(side[row].tolist()) for side in (batch.source, batch.target_output)
                ]
                found += list(zip(*sides, strict=True))
        assert sorted(found) == wanted
    again = TrainLoader(streamed(tokenizers, documents, sample_alpha=alpha))
    assert all(np.array_equal(a.source, b.source) for a, b in zip(epochs[0], again, strict=True))


def zip_segments(documents: list[Document]) -> list[tuple[str, str]]:
    return [pair for d in documents for pair in zip(d.source, d.target, strict=True)]


def test_sequences_are_shuffled_over_windows_and_streams_are_not(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    def first(documents: Any) -> set[str]:
        return {d.id for d in next(streamed(tokenizers, documents)._windows(0))}

    stream = first(Stream())
    assert stream == {d.id for d in DOCUMENTS[: len(stream)]}
    assert first(DOCUMENTS) != stream


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["kept", "streamed"])
@pytest.mark.parametrize("done", [3, 10_000], ids=["inside", "behind the last"])
def test_loader_goes_on(tokenizers: tuple[Tokenizer, Tokenizer], kind: str, workers: int, done: int) -> None:
    def loader(**options: Any) -> TrainLoader:
        return TrainLoader(sampler() if kind == "kept" else streamed(tokenizers), workers, **options)

    whole = loader()
    epochs = [names(whole) for _ in range(3)]
    start = min(done, len(epochs[1]))
    rest = loader(start=(1, start))
    assert rest.position == (1, start)
    assert names(rest) == (epochs[1][start:] or epochs[2])


def test_loader_counts_what_was_trained_on_not_what_was_handed_out() -> None:
    trained = 0
    loader = TrainLoader(sampler(), trained=lambda: trained)
    epoch = names(TrainLoader(sampler()))
    ahead = iter(loader)
    handed_out = [next(ahead).ids for _ in range(4)]
    trained = 3
    assert loader.position == (0, 3)
    assert handed_out + [batch.ids for batch in ahead] == epoch
    assert loader.position == (0, 3)
    trained = len(epoch)
    assert loader.position == (1, 0)


def test_a_new_iterator_starts_behind_the_last_trained_batch() -> None:
    trained = 0
    loader = TrainLoader(sampler(), trained=lambda: trained)
    epoch = names(TrainLoader(sampler()))
    next(iter(loader))
    assert next(iter(loader)).ids == epoch[0]
    trained = 2
    assert names(loader) == epoch[2:]


def test_loader_has_no_length() -> None:
    assert not hasattr(TrainLoader(sampler()), "__len__")


def test_nothing_kept_gives_nothing() -> None:
    corpus = encoded([[(1, 9)], [(9, 2)]])
    loader = TrainLoader(TokenBatchSampler(corpus, Cutting(50, max_ratio=2.0), 300, 1))
    assert names(loader) == names(loader) == []
