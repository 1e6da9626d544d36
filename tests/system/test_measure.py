"""The measured peak is that of the block, not of the whole process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.system import measure
from scaleformer.system.measure import measured, read_size, shown_size

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


def test_sizes_are_read_and_shown():
    assert [read_size(text) for text in ("2GiB", "512 MiB", "1.5KiB", "2gb", "100", 7)] == [
        2 << 30, 512 << 20, 1536, 2_000_000_000, 100, 7,
    ]  # fmt: skip
    assert [read_size(text) for text in ("", "GiB", "-1GiB", "2XiB", "0", "1e9")] == [None] * 6
    assert [shown_size(size) for size in (2 << 30, 1300 << 20, 700 << 20, 3000, 1)] == [
        "2 GiB", "1.3 GiB", "700 MiB", "2.9 KiB", "0.0 KiB",
    ]  # fmt: skip
    for size in (1, 3000, 1300 << 20, (2 << 30) + 1):
        read = read_size(shown_size(size, up=True))
        assert read is not None
        assert size <= read
