"""Memory of a CPU: how that of tensors is taken from the system and kept, and what oneDNN keeps of its kernels."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

# <malloc.h>: what is freed at the end of the heap goes back to the system beyond so many bytes; blocks of so many are
# taken from the system one by one, and go back at once.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST = (1 << 31) - 1  # of an int
_LARGE = 64 << 20


def keep_freed_memory() -> bool:
    """Keep what is freed for the tensors that come next, but for blocks of 64 MiB and more; whether that was possible.

    By itself glibc hands blocks of 32 MiB back at once, often much smaller ones, and these once some more of them are
    free; the next call fetches them again, page by page, each filled with zeros. That can be a third of the time of an
    attention function. What was held at most stays held until `give_back_memory`. Larger blocks still go back: kept,
    they leave holes that the next one does not fit into, and documents of 65,536 tokens took twice the memory, in the
    same time. Someone who set MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ or GLIBC_TUNABLES has decided already:
    nothing is changed then.
    """
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(_TRIM_THRESHOLD, _MOST), mallopt(_MMAP_THRESHOLD, _LARGE)])


def use_huge_pages() -> None:
    """Let torch ask for pages of 2 MiB for tensors of as many and more, where the system has such and nothing else was
    said; before the first tensor of the process, at which torch reads this.

    By itself Linux gives them to those alone who ask (transparent_hugepage: madvise, as most distributions set it), and
    the tensors of long documents, which go back to the system, are fetched again in pages of 4 KiB.
    """
    if Path("/sys/kernel/mm/transparent_hugepage").is_dir():
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def bound_kernel_caches() -> None:
    """Let oneDNN keep the kernels of 256 products at most, where nothing else was said; before the first of them.

    It makes one for every shape, half a megabyte each for bf16, and torch and oneDNN keep 1,024 each: batches of ever
    different lengths would fill gigabytes [pytorch/pytorch issue 98688].
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "256")


def give_back_memory() -> None:
    """Give all free memory back to the system."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
