"""The CPU settings of all commands: threads and memory."""

from __future__ import annotations

from functools import cache

import torch

from scaleformer.system.allocator import bound_kernel_caches, keep_freed_memory


def set_up_cpu(threads: int | None) -> None:
    """Set the CPU threads (None: all cores), keep freed memory (`keep_freed_memory`) and `bound_kernel_caches`."""
    keep_freed_memory()
    bound_kernel_caches()
    if threads is not None:
        torch.set_num_threads(threads)


@cache
def widen_heap() -> None:
    """Make glibc serve blocks of up to 32 MiB from its heap, without changing any setting; once per process.

    At first glibc takes each block of 128 KiB and more from the system, filled with zeros page by page, and returns it
    when it is freed. After it has freed a block, it serves blocks of that size from the heap and keeps twice as much
    (M_MMAP_THRESHOLD in mallopt(3)). So it is enough to allocate and free one block without touching its pages.
    """
    torch.empty((32 << 20) - 8192, dtype=torch.uint8)  # below 32 MiB with glibc's header
