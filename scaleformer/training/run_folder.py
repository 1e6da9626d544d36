"""The record of a run in its folder: how to repeat it, what it ran on, how it ended."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
import yaml

from scaleformer.system.files import atomic_writer
from scaleformer.system.provenance import describe_device

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FINISHED = "finished"
# Files that only trainings write into the folder of a run, under their temporary names.
WRITTEN = ("checkpoints/.*", ".config.yaml.*", ".environment.json.*", ".metrics.csv.*", ".status.json.*")


def write_config(directory: Path, config: Mapping[str, Any], runs: str | None = None) -> None:
    """Write config.yaml, from which `scaleformer train --config-path RUN --config-name config` repeats a run.

    runs  the folder for the repetition; None: that of the experiment called default
    """
    parent = (runs or "runs/default").replace("'", "\\'")
    place = f"${{new_folder:'{parent}/${{now:%Y-%m-%d_%H-%M-%S}}'}}"
    defaults = ["_self_", {"override hydra/job_logging": "stdout"}]
    hydra = {"run": {"dir": place}, "job": {"chdir": False}}
    content = {"defaults": defaults, **config, "resume": None, "hydra": hydra}
    with atomic_writer(directory / "config.yaml") as file:
        yaml.safe_dump(content, file, sort_keys=False, allow_unicode=True)


def write_environment(
    directory: Path,
    device: torch.device,
    processes: int,
    seeds: Mapping[str, int],
    data: Mapping[str, str],
    parent: Mapping[str, Any] | None = None,
) -> None:
    """Append this start or resume to environment.json: command, code, packages, machine, data.

    seeds, data  by name: numbers, and fingerprints of the splits
    parent       path and hash of the model that the run began with; None for random weights
    """
    path = directory / "environment.json"
    starts: list[Any] = []
    with suppress(OSError, ValueError, KeyError, TypeError):
        starts = list(json.loads(path.read_text(encoding="utf-8"))["starts"])
    start = {
        "time": _now(),
        "command": [sys.executable, *sys.argv],
        "folder": str(Path.cwd()),
        "git": git_revision(Path(__file__).parents[2]),
        "seeds": dict(seeds),
        "data": dict(data),
        "parent": parent,
        "machine": _machine(device, processes),
        "python": sys.version,
        "packages": _packages(),
    }
    with atomic_writer(path) as file:
        json.dump({"starts": [*starts, start]}, file, indent=2, ensure_ascii=False)
        file.write("\n")


@cache
def _packages() -> dict[str, str]:
    """The version of every installed package."""
    found = [(str(data["Name"]), str(data["Version"])) for data in (d.metadata for d in distributions())]
    return dict(sorted(found, key=lambda pair: pair[0].lower()))


def git_revision(directory: Path) -> dict[str, Any] | None:
    """The commit of a working tree, and whether tracked files have changed; None without a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        if not (directory / ".git").exists():  # an installed package, perhaps inside another repository
            return None
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _machine(device: torch.device, processes: int) -> dict[str, Any]:
    memory = None
    with suppress(ValueError, OSError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "device": describe_device(device),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "processes": processes,
    }


def write_status(directory: Path, state: str, step: int) -> None:
    """Write status.json: training, evaluating, interrupted, failed or finished, and the step. A killed run keeps one of
    the first two."""
    with atomic_writer(directory / "status.json") as file:
        json.dump({"state": state, "step": step, "time": _now()}, file)
        file.write("\n")


def is_finished(directory: Path) -> bool:
    """Whether a run is recorded as finished; one without a readable status is not."""
    try:
        return bool(json.loads((directory / "status.json").read_text(encoding="utf-8"))["state"] == FINISHED)
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Keep other trainings out of a run's folder; the system releases the lock when a process is killed.

    Removes what such a process left half-written: a partial checkpoint may be large.
    Raises ValueError where another training holds the folder.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("a") as file:
        if not _lock(file):
            raise ValueError(f"{directory}: another training is using this folder: wait until it ends, or stop it")
        for pattern in WRITTEN:
            for path in directory.glob(f"{pattern}.tmp"):
                with suppress(OSError):
                    path.unlink()
        try:
            yield
        except BaseException:
            if [path.name for path in directory.iterdir()] == [".lock"]:  # it failed before it wrote anything
                (directory / ".lock").unlink()
            raise


def is_claimed(directory: Path) -> bool:
    """Whether another process is training in a run's folder."""
    try:
        with (directory / ".lock").open("r+") as file:
            return not _lock(file)
    except OSError:
        return False


def _lock(file: Any) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
