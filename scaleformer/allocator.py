"""What the C library does with memory that tensors on a CPU no longer need: glibc's malloc; elsewhere nothing."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

# <malloc.h>: what is freed at the end of the heap goes back to the system beyond so many bytes; blocks of so many are
# taken from the system one by one, and go back at once.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST = (1 << 31) - 1  # of an int
_LARGE = 1 << 30


def keep_freed_memory() -> bool:
    """Keep what is freed for the tensors that come next, but for blocks of 1 GiB and more; whether that was possible.

    By itself glibc hands blocks of more than 32 MiB back at once, and smaller ones once a little more than that is
    free; the next call fetches them again, page by page, each filled with zeros. That can be a third of the time of an
    attention function or of a training step. What was held at most stays held until `give_back_memory`. Someone who set
    MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ or GLIBC_TUNABLES has decided already: nothing is changed then.
    """
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(_TRIM_THRESHOLD, _MOST), mallopt(_MMAP_THRESHOLD, _LARGE)])


def give_back_memory() -> None:
    """Give all free memory back to the system."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
