"""CPU memory: how the C library takes it from the system and keeps it, and how many kernels oneDNN caches."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

# <malloc.h>: beyond TRIM_THRESHOLD bytes, free memory at the end of the heap goes back to the system. Blocks of
# MMAP_THRESHOLD bytes and more are taken from the system one by one and go back as soon as they are freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST = (1 << 31) - 1  # the largest C int
_LARGE = 64 << 20


def keep_freed_memory() -> bool:
    """Keep freed memory for later tensors, except blocks of 64 MiB and more. Returns whether that was possible.

    By default glibc returns blocks of 32 MiB to the system at once, and smaller ones soon after. The next call fetches
    them again page by page, each filled with zeros: up to a third of the time of an attention function. With this call
    the process keeps its peak of such memory until `give_back_memory`. Larger blocks still go back. If they were kept,
    they would leave holes too small for the next one: documents of 65,536 tokens took twice the memory in the same
    time. Changes nothing if MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ or GLIBC_TUNABLES is set.
    """
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(_TRIM_THRESHOLD, _MOST), mallopt(_MMAP_THRESHOLD, _LARGE)])


def use_huge_pages() -> None:
    """Let torch request 2 MiB pages for tensors of at least that size, if the system has them and the environment does
    not decide otherwise. Call it before the first tensor of the process, when torch reads the variable.

    Most distributions give huge pages only on request (transparent_hugepage: madvise). Without them, the large tensors
    of long documents are fetched from the system in pages of 4 KiB, again and again.
    """
    if Path("/sys/kernel/mm/transparent_hugepage").is_dir():
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def bound_kernel_caches() -> None:
    """Let oneDNN cache the kernels of at most 256 matrix products, unless the environment decides otherwise. Call it
    before the first product. oneDNN makes a kernel for every shape, half a megabyte each in bf16, and torch and oneDNN
    each cache 1,024 of them: batches whose lengths always differ would fill gigabytes [pytorch/pytorch issue 98688]."""
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")


def give_back_memory() -> None:
    """Return all free memory to the system."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
