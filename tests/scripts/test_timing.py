"""Functions that take turns, and the memory of a call."""

from __future__ import annotations

import torch

from scripts.timing import alternate, peak_memory


def test_functions_take_turns() -> None:
    calls: list[str] = []
    functions = {name: (lambda name=name: calls.append(name)) for name in "ab"}
    times = alternate(functions, repeats=3, seconds=0.0)
    assert calls == ["a", "b"] * 4  # one to warm up
    assert times.keys() == {"a", "b"}
    assert all(seconds >= 0 for seconds in times.values())


def test_peak_memory_counts_what_is_held_at_once() -> None:
    def function() -> torch.Tensor:
        first = torch.zeros(1000) + torch.zeros(1000)  # three vectors at one time
        return first.sum()

    assert 3 * 4000 <= peak_memory(function, torch.device("cpu")) < 4 * 4000
