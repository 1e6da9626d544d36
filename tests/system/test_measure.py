"""The measured peak is that of the block, not of the whole process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.system import measure
from scaleformer.system.measure import measured

MIB = 2**20


@pytest.mark.parametrize("method", ["VmHWM", "sampled"])
def test_each_block_is_measured_by_itself(method, monkeypatch):
    if method == "sampled":
        monkeypatch.setattr(measure, "_CLEAR", Path("/nonexistent/clear_refs"))
    with measured() as first:
        big = torch.ones(40 * MIB)  # 160 MiB
        del big
    with measured() as second:
        small = torch.ones(2 * MIB)
    assert small.sum() > 0
    assert first.memory_method == second.memory_method == method
    assert 100 * MIB < first.memory_growth_bytes < 400 * MIB
    assert second.memory_growth_bytes < 60 * MIB
    assert first.peak_memory_bytes > first.memory_growth_bytes
    assert first.seconds > 0
    assert set(first.to_dict()) == {"seconds", "peak_memory_bytes", "memory_growth_bytes", "memory_method"}


def test_an_error_goes_through():
    with pytest.raises(RuntimeError, match="inside"), measured():
        raise RuntimeError("inside")
