"""Batches of a kept corpus, epoch by epoch, and the workers that make them."""

from __future__ import annotations

import os
import signal
from itertools import islice
from typing import Any

import pytest
from torch.utils.data import Dataset

from scaleformer.data.cutting import Cutting
from scaleformer.data.sampler import Recipe, TokenBatchSampler, ready_made
from tests.data.toy import random_corpus

CUTTING = Cutting(50, multi_resolution=True)


Batches = list[list[list[int]]]


def sampler(seed: int = 1, **options: Any) -> TokenBatchSampler:
    return TokenBatchSampler(random_corpus(0), Recipe(CUTTING, 300, seed, **options))


def plain(batches: Any) -> Batches:
    return [[segments.tolist() for segments, _ in batch] for batch in batches]


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
def test_sampler_resumes_with_the_remaining_batches(done: int) -> None:
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
    parts = [plain(sampler(rank=rank, world=2)) for rank in range(2)]
    assert len(parts[0]) == len(parts[1])
    assert segments(parts[0] + parts[1]) == segments(plain(sampler()))


class Told(Dataset[int]):
    """The process that gives an item is told to end, as often as the item says."""

    def __getitem__(self, index: int) -> int:
        for _ in range(index):
            for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
                os.kill(os.getpid(), number)
        return index

    def __len__(self) -> int:
        return 3


def test_workers_leave_the_first_signals_to_the_training() -> None:
    items = iter(ready_made(Told(), 1, prefetch_factor=1))
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        next(items)
