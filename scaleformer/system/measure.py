"""Time and peak memory of a piece of work."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from scaleformer.system.allocator import give_back_memory

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_INTERVAL = 0.005
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(i?)B)?", re.IGNORECASE | re.ASCII)


@dataclass
class Cost:
    """Filled in when the block of `measured` ends.

    seconds              wall-clock time
    peak_memory_bytes    cpu: peak resident size of the process; cuda: peak of torch's allocator
    memory_growth_bytes  the peak minus the value at the start
    memory_method        "VmHWM" (the kernel's high-water mark, reset at the start), "sampled" or "cuda"
    """

    seconds: float = 0.0
    peak_memory_bytes: int = 0
    memory_growth_bytes: int = 0
    memory_method: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@contextmanager
def measured(device: str | torch.device = "cpu") -> Iterator[Cost]:
    """Measure the block. On a CPU this measures the whole process, so nothing else large should run in it meanwhile.

    Memory that earlier work freed but the C library still holds is returned to the system first, so it does not count.
    """
    device = torch.device(device)
    cost = Cost()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        start_bytes = torch.cuda.memory_allocated(device)
        start = time.perf_counter()
        yield cost
        torch.cuda.synchronize(device)
        cost.seconds = time.perf_counter() - start
        cost.peak_memory_bytes, cost.memory_method = torch.cuda.max_memory_allocated(device), "cuda"
        cost.memory_growth_bytes = cost.peak_memory_bytes - start_bytes
        return
    give_back_memory()
    start_bytes = memory_status("VmRSS")
    with _peak() as peak:
        start = time.perf_counter()
        yield cost
        cost.seconds = time.perf_counter() - start
    cost.peak_memory_bytes, cost.memory_method = peak.value, peak.method
    cost.memory_growth_bytes = max(peak.value - start_bytes, 0)


def memory_status(key: str) -> int:
    """A size of this process in bytes from /proc/self/status (VmRSS: resident, VmHWM: its peak); 0 if unavailable."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


def read_size(text: str | float) -> int | None:
    """Bytes of a size: `2GiB`, `512 MB`, or a number of them; None for what is none, or not above 0."""
    found = _SIZE.fullmatch(str(text).strip())
    if found is None or (isinstance(text, float) and not text.is_integer()):
        return None
    number, prefix, binary = found.groups()
    return (
        int(float(number) * (1024 if binary or not prefix else 1000) ** " KMGT".index((prefix or " ").upper())) or None
    )


def shown_size(size: int, up: bool = False) -> str:
    """A number of bytes for people, as `1.2 GiB`; `up` as a setting that holds them, `1.3GiB`."""
    power = next(power for power in (4, 3, 2, 1) if power == 1 or size >= 0.9995 * 1024**power)
    scaled = size / 1024**power
    if up:
        return f"{math.ceil(scaled * 10) / 10:g}{' KMGT'[power]}iB"
    return f"{scaled:.{0 if scaled >= 99.5 or scaled == int(scaled) else 1}f} {' KMGT'[power]}iB"


@dataclass
class _Peak:
    method: str
    value: int = 0


@contextmanager
def _peak() -> Iterator[_Peak]:
    try:
        _CLEAR.write_text("5")  # "5": reset the peak resident set size, see proc(5)
    except OSError:
        peak = _Peak("sampled")
        with _sampling(peak):
            yield peak
        return
    peak = _Peak("VmHWM")
    yield peak
    peak.value = memory_status("VmHWM")


@contextmanager
def _sampling(peak: _Peak) -> Iterator[None]:
    done = threading.Event()

    def sample() -> None:
        while True:
            peak.value = max(peak.value, memory_status("VmRSS"))
            if done.wait(_INTERVAL):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        peak.value = max(peak.value, memory_status("VmRSS"))
