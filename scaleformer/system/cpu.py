"""Threads and memory of the CPU, as the commands set them."""

from __future__ import annotations

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
