"""What the commands share: errors in one line, settings of the decoding, a bar on stderr."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
import yaml

# Hydra itself is imported by train.py and the scripts alone: its exceptions are known by where they come from.
CONFIGURATION = ("hydra", "omegaconf", "antlr4")
RESUMABLE = 75  # exit code: EX_TEMPFAIL of sysexits.h, "try again later"
GIVEN_NAME = str | int  # of a file or folder: 2024 is one too
NAME = GIVEN_NAME | None  # null stands for the usual one


class Interrupted(Exception):
    """The program was asked to end, and the same command with resume= goes on; the message says the rest."""


def run_command(command: Callable[[], Any]) -> None:
    """Run a function made by `hydra.main` whose task is decorated by `one_line_errors`, so that what is wrong with the
    command line ends in one line and exit code 1 as well.

    Hydra would print its own report, of several lines; HYDRA_FULL_ERROR makes it hand the exception on to us.
    """
    if not _wants_traceback():
        os.environ.update(HYDRA_FULL_ERROR="1", SCALEFORMER_ONE_LINE="1")  # for the processes of other devices too
    with one_line_errors():
        command()


def answer_help(arguments: Sequence[str] | None, text: str | None, options: Any) -> None:
    """Where -h or --help is among the arguments (None: of the command line), print `text` and the settings with their
    defaults, and leave with exit code 0. options: a dataclass whose fields have defaults."""
    if {"-h", "--help"} & set(sys.argv[1:] if arguments is None else arguments):
        print(f"{text}\nSettings, each key=value, with their defaults:\n")
        print(yaml.safe_dump(asdict(options()), sort_keys=False, default_flow_style=None), end="")
        sys.exit(0)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn ValueError, OSError, errors of the configuration and of memory into "error: ..." on stderr and exit code 1,
    `Interrupted` into its message and exit code 75; SIGTERM ends the program in order, with exit code 143.

    Also a decorator. SCALEFORMER_TRACEBACK=1 or HYDRA_FULL_ERROR=1 in the environment lets them through as they are;
    all other exceptions are faults of the program and keep their traceback.
    """
    if _wants_traceback():
        yield
        return
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
        if is_out_of_memory(error):
            _exit(f"out of memory ({_flat(str(error)) or 'no more to be had'}): take smaller batches or pieces")
        if isinstance(error, (ValueError, OSError)) or type(error).__module__.split(".")[0] in CONFIGURATION:
            _exit(describe(error))
        raise


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
        if (unknown := _unknown_setting(error.__cause__)) is not None:
            return unknown
        text = _flat(text.split("Config search path:")[0].split("See https:")[0])
        if override := getattr(error, "override", None):
            text = f"{override}: {text} (a value with = , or spaces wants quotes: \"key='value'\")"
        cause = error.__cause__
        if cause is not None and str(cause):
            text = f"{text} ({str(cause).splitlines()[0]})"
        return text
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return _flat(text)


def _unknown_setting(cause: BaseException | None) -> str | None:
    """What to say of an override of a setting that does not exist. (Hydra proposes to add it: it would be refused.)"""
    parent, key = getattr(cause, "parent_node", None), getattr(cause, "full_key", None)
    if parent is None or not key or "is not in struct" not in str(cause):
        return None
    group, _, inner = key.partition(".")
    other = f" (another choice of {group}= may have others)" if inner else ""
    return f"{key}: no such setting; there are {', '.join(name for name in parent if name != 'hydra')}{other}"


def _wants_traceback() -> bool:
    if os.environ.get("SCALEFORMER_TRACEBACK") == "1":
        return True
    return os.environ.get("HYDRA_FULL_ERROR") == "1" and os.environ.get("SCALEFORMER_ONE_LINE") != "1"


def _flat(text: str) -> str:
    return " ".join(text.split())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: of a GPU, of Python, or of torch's allocator on a CPU (a plain RuntimeError)."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)


def _exit(message: str) -> None:
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_PROCID") or "0"
    print(f"error{f' in process {rank}' if rank != '0' else ''}: {message}", file=sys.stderr)
    sys.exit(1)
