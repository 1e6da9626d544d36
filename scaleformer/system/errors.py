"""Errors in one line, and exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

# Only the commands import Hydra, so its exceptions are recognised by their module.
CONFIGURATION = ("hydra", "omegaconf", "antlr4")
RESUMABLE = 75  # exit code: EX_TEMPFAIL of sysexits.h, "try again later"


class Interrupted(Exception):
    """A signal ended the program; the message says how to continue."""


class DataError(ValueError):
    """Unusable input data: one line with the file, the line number if there is one, and what to fix."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # names of files and documents may contain line breaks


@contextmanager
def one_line_errors(resumable: bool = False) -> Iterator[None]:
    """Turn ValueError, OSError, configuration errors and lack of memory into "error: ..." on stderr and exit code 1,
    `Interrupted` into its message and exit code 75. SIGTERM ends the program cleanly with exit code 143.

    resumable  of a training that has not begun yet: SIGTERM, SIGUSR1 and SIGHUP end it with exit code 75 too
    Also a decorator. With SCALEFORMER_TRACEBACK=1 or HYDRA_FULL_ERROR=1 in the environment errors keep their traceback,
    interruptions do not. All other exceptions are bugs and always keep their traceback.
    """
    try:
        with _orderly_end(resumable):
            yield
    except BrokenPipeError:
        # The reader of our output has gone. Without this Python would flush stdout at exit and fail again.
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
    """The message for an error of the input or the machine; None for a bug."""
    if is_out_of_memory(error):
        return f"out of memory ({_flat(str(error)) or 'allocation failed'}): use smaller batches or pieces"
    if isinstance(error, (ValueError, OSError)) or type(error).__module__.split(".")[0] in CONFIGURATION:
        return describe(error)
    return None


@contextmanager
def _orderly_end(resumable: bool) -> Iterator[None]:
    """Exit on signals through SystemExit, so that temporary files are removed. An existing handler (`SignalWatch`, or
    one of the importing program) stays."""

    def leave(number: int, _: object) -> None:
        if resumable:
            with suppress(OSError):  # print is unsafe here: it may be what was interrupted
                os.write(2, f"interrupted by {signal.Signals(number).name} before the training began\n".encode())
        sys.exit(RESUMABLE if resumable else 128 + number)

    names = ("SIGTERM", "SIGUSR1", "SIGHUP") if resumable else ("SIGTERM",)
    with ExitStack() as restored:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, leave)
                    restored.callback(signal.signal, number, signal.SIG_DFL)
        yield


def describe(error: Exception) -> str:
    """The message of an exception in one line."""
    module = type(error).__module__.split(".")[0]
    text = str(error) or type(error).__name__
    if module == "omegaconf":
        first = text.splitlines()[0]  # the rest shows omegaconf's internals
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
    """The override quoted for the shell, so that Hydra reads its value as a string."""
    key, _, value = override.partition("=")
    text = value.replace("'", "\\'")
    return shlex.quote(f"{key}='{text}'") if value else f"{key}=VALUE"


def wants_traceback() -> bool:
    """Whether the environment asks for tracebacks."""
    if os.environ.get("SCALEFORMER_TRACEBACK") == "1":
        return True
    return os.environ.get("HYDRA_FULL_ERROR") == "1" and os.environ.get("SCALEFORMER_ONE_LINE") != "1"


def _flat(text: str) -> str:
    """The text in one line. Spaces within lines stay: they may be part of a file name."""
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: on a GPU, in Python, or in torch's CPU allocator (which raises a plain RuntimeError)."""
    of_gpu = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)  # errors are handled without torch, too
    if isinstance(error, (MemoryError, of_gpu)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)
