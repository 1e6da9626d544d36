"""Errors in one line, and exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Hydra itself is imported by the commands alone: its exceptions are known by where they come from.
CONFIGURATION = ("hydra", "omegaconf", "antlr4")
RESUMABLE = 75  # exit code: EX_TEMPFAIL of sysexits.h, "try again later"


class Interrupted(Exception):
    """The program was asked to end, and the same command with resume= goes on; the message says the rest."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn ValueError, OSError, errors of the configuration and of memory into "error: ..." on stderr and exit code 1,
    `Interrupted` into its message and exit code 75; SIGTERM ends the program in order, with exit code 143.

    Also a decorator. SCALEFORMER_TRACEBACK=1 or HYDRA_FULL_ERROR=1 in the environment lets errors through as they are,
    not what ends in order; all other exceptions are faults of the program and keep their traceback.
    """
    try:
        with _orderly_end():
            yield
    except BrokenPipeError:
        # Whoever read our output has gone. Python would flush stdout at exit and complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Interrupted as error:
        print(str(error), file=sys.stderr)
        sys.exit(RESUMABLE)
    except Exception as error:
        if wants_traceback() or (text := one_line(error)) is None:
            raise
        rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_PROCID") or "0"
        print(f"error{f' in process {rank}' if rank != '0' else ''}: {text}", file=sys.stderr)
        sys.exit(1)


def one_line(error: Exception) -> str | None:
    """What to say of an error of the input or of the machine; None for a fault of the program."""
    if is_out_of_memory(error):
        return f"out of memory ({_flat(str(error)) or 'no more to be had'}): take smaller batches or pieces"
    if isinstance(error, (ValueError, OSError)) or type(error).__module__.split(".")[0] in CONFIGURATION:
        return describe(error)
    return None


@contextmanager
def _orderly_end() -> Iterator[None]:
    """SIGTERM by its default would leave temporary files behind; a handler that is there already (`SignalWatch`, one of
    whoever imports this) stays."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def describe(error: Exception) -> str:
    """The message of an exception in one line."""
    module = type(error).__module__.split(".")[0]
    text = str(error) or type(error).__name__
    if module == "omegaconf":
        first = text.splitlines()[0]  # the rest is its inner view of the key
        key = getattr(error, "full_key", None)
        return first if not key or key in first else f"{key}: {first}"
    if module in CONFIGURATION:
        text = _flat(text.split("Config search path:")[0].split("See https:")[0])
        if override := getattr(error, "override", None):
            text = f"{override}: {text} (type {_quoted(override)})"
        cause = error.__cause__
        if cause is not None and str(cause):
            text = f"{text} ({str(cause).splitlines()[0]})"
        return text
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return _flat(text)


def _quoted(override: str) -> str:
    """The override as the shell has to be given it so that Hydra takes its value for a text."""
    key, _, value = override.partition("=")
    text = value.replace("'", "\\'")
    return shlex.quote(f"{key}='{text}'") if value else f"{key}=VALUE"


def wants_traceback() -> bool:
    """Whether the environment asks for exceptions as they are."""
    if os.environ.get("SCALEFORMER_TRACEBACK") == "1":
        return True
    return os.environ.get("HYDRA_FULL_ERROR") == "1" and os.environ.get("SCALEFORMER_ONE_LINE") != "1"


def _flat(text: str) -> str:
    """In one line; spaces inside of lines stay, since they may be those of a name."""
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: of a GPU, of Python, or of torch's allocator on a CPU (a plain RuntimeError)."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)
