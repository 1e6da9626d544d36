"""The private parts of Lightning (2.6) that training needs, each with its reason; no other module touches them.

A new version of Lightning is to be checked against these functions.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl
from pytorch_lightning.callbacks import WeightAveraging
from pytorch_lightning.strategies import ModelParallelStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher


def correct_step_count(trainer: pl.Trainer) -> None:
    """Lightning decides by its own step count whether to log. In a resumed run that had ended with a validation, that
    count is one too high, and would never agree with `global_step`."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step


def validates_next(trainer: pl.Trainer) -> bool:
    """Whether a validation follows the batch that ends now: no hook tells it before the validation begins, and a
    checkpoint written in between makes a resumed run skip it."""
    loop = trainer.fit_loop
    assert loop._data_fetcher is not None
    return loop.epoch_loop._should_check_val_fx(loop._data_fetcher) and any(trainer.num_val_batches)


@contextmanager
def before_this_batch(trainer: pl.Trainer) -> Iterator[None]:
    """For a checkpoint written when a batch has begun: a resumed run has not begun it, so that it does not count."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    for count in (progress.total, progress.current):
        count.ready -= 1
    yield
    for count in (progress.total, progress.current):
        count.ready += 1


def shard_over_all(strategy: ModelParallelStrategy) -> None:
    """Lightning shards over the machines only, unless it gets a number of processes when the strategy is made: then
    nobody knows it yet."""
    strategy._data_parallel_size = strategy.num_nodes * strategy.num_processes


def restart_average(callback: WeightAveraging) -> None:
    """Make the next update of the average a copy of the weights: Lightning, set to start later, validates and saves
    the initial weights until then."""
    assert callback._average_model is not None
    callback._average_model.n_averaged.zero_()


def copies_this_process(trainer: pl.Trainer) -> bool:
    """Whether the other processes of this machine are forks of this one: Lightning's launchers that run the command
    again share a class that has no public name."""
    launcher = trainer.strategy.launcher
    return launcher is not None and not isinstance(launcher, _SubprocessScriptLauncher)


def kill_other_processes(trainer: pl.Trainer) -> None:
    """End the processes that this one started: after an error here they may wait for it for half an hour."""
    launcher = trainer.strategy.launcher
    if isinstance(launcher, _SubprocessScriptLauncher):
        launcher.kill(signal.SIGKILL)
