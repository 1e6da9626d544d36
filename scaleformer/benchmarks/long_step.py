"""One training step on a pair of very long documents, in a process of its own with a limit on its memory."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from scaleformer.benchmarks.models import Sizes, make_batch
from scaleformer.benchmarks.training import TrainedSystem
from scaleformer.system.cpu import set_up_cpu


@dataclass(frozen=True)
class LongStep:
    """One training step on a pair of long documents in its own process: its seconds and the peak resident bytes of the
    process, or why it failed."""

    system: str
    precision: str
    tokens: int
    seconds: float = 0.0
    resident: float = 0.0
    failure: str = ""


def long_steps(
    systems: list[str], sizes: Sizes, precision: str, tokens: int, segment: int, memory: float, threads: int
) -> Iterator[LongStep]:
    """A step of each system with activations recomputed in the backward pass, within `memory` bytes."""
    context = multiprocessing.get_context("spawn")
    for system in systems:
        receiver, sender = context.Pipe(duplex=False)
        arguments = (sender, system, sizes, precision, tokens, segment, memory, threads)
        process = context.Process(target=_long_step, args=arguments)
        process.start()
        sender.close()
        try:
            yield receiver.recv()
        except EOFError:
            process.join()
            yield LongStep(system, precision, tokens, failure=f"ended with code {process.exitcode}")
        process.join()


def _long_step(
    sender: Connection,
    system: str,
    sizes: Sizes,
    precision: str,
    tokens: int,
    segment: int,
    memory: float,
    threads: int,
) -> None:
    set_up_cpu(threads)
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    try:
        trained = TrainedSystem(system, sizes, tokens, precision, checkpointing=True)
        batch = make_batch(1, tokens, segment, sizes.vocabulary, torch.Generator().manual_seed(0))
        start = time.perf_counter()
        trained.step(batch)
        seconds = time.perf_counter() - start
    except (MemoryError, RuntimeError) as error:
        sender.send(LongStep(system, precision, tokens, failure=str(error).splitlines()[0]))
        return
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sender.send(LongStep(system, precision, tokens, seconds, resident))
