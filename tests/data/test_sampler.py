"""Batches of a kept corpus, epoch by epoch, and the workers that make them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from torch.utils.data import Dataset

from scaleformer.data.cutting import Cutting
from scaleformer.data.sampler import KeptBatches, Recipe, ready_made
from tests.data.toy import epoch_parts, random_corpus

CUTTING = Cutting(50, multi_resolution=True)


Batches = list[list[list[int]]]


def plain(epoch: int, seed: int = 1, done: int = 0, **options: Any) -> Batches:
    batches = epoch_parts(random_corpus(0), Recipe(CUTTING, 300, seed, **options), epoch, done)
    return [[segments.tolist() for (segments,) in batch] for batch in batches]


def segments(batches: Batches) -> list[int]:
    return sorted(i for batch in batches for example in batch for i in example)


def test_epochs_differ_and_hold_every_segment() -> None:
    epochs = [plain(epoch) for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    for epoch in epochs:
        assert segments(epoch) == list(range(random_corpus(0).segments))
    assert [plain(epoch) for epoch in range(3)] == epochs
    assert plain(0, seed=2) != epochs[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [0, 1, 7])
def test_an_epoch_goes_on_with_the_remaining_batches(done: int, workers: int) -> None:
    whole = plain(1)
    assert plain(1, done=done) == whole[done:]
    corpus, recipe = random_corpus(0), Recipe(CUTTING, 300, 1)
    batches = KeptBatches(corpus, recipe, workers)
    every = [(position, batch.ids) for position, batch in batches.rest((1, 0, 0))]
    assert [(position, batch.ids) for position, batch in batches.rest((1, 0, done))] == every[done:]
    assert [position for position, _ in every] == [(1, 0, number) for number in range(1, len(whole) + 1)]


def test_processes_share_an_epoch() -> None:
    parts = [plain(0, rank=rank, world=2) for rank in range(2)]
    assert len(parts[0]) == len(parts[1])
    assert segments(parts[0] + parts[1]) == segments(plain(0))


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


def test_a_program_does_not_wait_for_its_workers_at_the_end() -> None:
    """Whatever still holds them, such as the frames of a failure."""
    program = "\n".join(
        (
            "from scaleformer.data.sampler import ready_made",
            "items = iter(ready_made(range(9), 2))",
            "items.itself = [items]",
            "print(next(items))",
        )
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, timeout=50, check=True, capture_output=True, text=True)  # they would take a minute
    assert (done.stdout, done.stderr) == ("0\n", "")
