"""Timing functions beside each other, and how much memory one takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile


def alternate(
    functions: Mapping[str, Callable[[], object]],
    device: torch.device,
    repeats: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median time of each function in seconds, all called in turn, so that what else the machine does meets all.

    Each is called once before. Then come at least `repeats` rounds, and more, up to 40 times as many, until all of them
    together have taken `seconds`.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for done in range(40 * repeats):
        if done >= repeats and sum(map(sum, times.values())) >= seconds:
            break
        for name, function in functions.items():
            _wait(device)
            start = clock()
            function()
            _wait(device)
            times[name].append(clock() - start)
    return {name: median(values) for name, values in times.items()}


def peak_memory(function: Callable[[], object], device: torch.device) -> int:
    """The most bytes that the function held at one time on top of what was there before it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return torch.cuda.max_memory_allocated(device) - before
    profiled = profile_cpu(function, memory=True)
    assert profiled.profiler is not None
    results: Any = profiled.profiler.kineto_results  # torch's types lack an event's nbytes
    changes = [(event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda change: change[0]):
        held += change
        peak = max(peak, held)
    return peak


def profile_cpu(function: Callable[[], object], memory: bool = False) -> profile:
    """torch's profiler after a call of the function; with `memory` it has the allocations, too."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's notes would run into the output
    with profile(activities=[ProfilerActivity.CPU], profile_memory=memory) as profiled:
        function()
    return profiled


def saved_bytes(function: Callable[[], object]) -> int:
    """The bytes that the function keeps for its backward pass, its arguments among them: each piece of memory once."""
    kept: dict[int, Tensor] = {}  # held until the end, so that no address comes twice

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        out = function()
    assert out is not None
    return sum(x.untyped_storage().nbytes() for x in kept.values())


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
