"""Times functions side by side and measures the memory of one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def alternate(functions: Mapping[str, Callable[[], object]], repeats: int, seconds: float) -> dict[str, float]:
    """The median time of each function in seconds. They are called in turn, so that other load on the machine hits all.

    Each is called once to warm up. Then follow at least `repeats` and at most 40 * `repeats` rounds, until they have
    together taken `seconds`.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for done in range(40 * repeats):
        if done >= repeats and sum(map(sum, times.values())) >= seconds:
            break
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def peak_memory(function: Callable[[], object], device: torch.device) -> int:
    """The peak number of bytes that the function held on top of those before the call."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # keep the profiler's log out of the output
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    assert profiled.profiler is not None
    results: Any = profiled.profiler.kineto_results  # torch's types lack an event's nbytes
    changes = [(event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda change: change[0]):
        held += change
        peak = max(peak, held)
    return peak


def wait(device: torch.device) -> None:
    """Return once the device has done what it was given; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
