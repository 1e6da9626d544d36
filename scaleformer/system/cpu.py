"""Threads and memory of the CPU, as the commands set them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from scaleformer.system.allocator import bound_kernel_caches, keep_freed_memory


def set_up_cpu(threads: Any) -> None:
    """Use so many CPU threads, None for all cores, keep freed memory (`keep_freed_memory`), and no kernels without end
    (`bound_kernel_caches`). ValueError for what is no such number."""
    keep_freed_memory()
    bound_kernel_caches()
    if threads is None:
        return
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise ValueError(f"threads={threads}: wanted a whole number of at least 1, or null for all cores")
    torch.set_num_threads(threads)


@cache
def widen_heap() -> None:
    """Let glibc serve blocks of up to 32 MiB from its heap, without changing any setting; once a process.

    At first it takes each block of 128 KiB and more from the system, page by page filled with zeros, and gives it back
    when it is freed. That can be more than half of the time of an attention function. It learns from what it frees:
    blocks of that size come from the heap from then on, which keeps twice as much (M_MMAP_THRESHOLD in mallopt(3)). So
    one block, taken and freed without touching its pages, is enough. `keep_freed_memory` does more, for commands.
    """
    torch.empty((32 << 20) - 8192, dtype=torch.uint8)  # less than 32 MiB with what the library adds
