"""Result files: JSON with the conditions of its numbers, written completely or not at all."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from scaleformer.system.files import atomic_writer

PACKAGES = ("scaleformer", "torch", "pytorch-lightning", "sentencepiece", "sacrebleu", "datasets", "numpy")

_typed: list[str] = []  # the command line before its settings are quoted for Hydra


def remember_command(arguments: Sequence[str]) -> None:
    """Keep the command line as it was typed, for `provenance`: the program that runs, and these arguments."""
    program = Path(sys.argv[0])
    ours = program.stem == "scaleformer" or program.parent.name == "scaleformer"  # installed, or python -m scaleformer
    _typed[:] = [*(["scaleformer"] if ours else ["python", str(program)]), *arguments]


def provenance(
    device: str | torch.device = "cpu",
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_sha256: str | None = None,
    signatures: Mapping[str, str] | None = None,
    parent: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What it takes to reproduce a number: command, versions, device, seed, checkpoint with its hash, and signatures of
    the metrics; also the time (UTC). parent: path and hash of the model that the training started from."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "command": shlex.join(_typed or ["python", *sys.orig_argv[1:]]),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions,
        "device": describe_device(device),
        "seed": seed,
        "checkpoint": None if checkpoint is None else {"path": str(checkpoint), "sha256": checkpoint_sha256},
        "parent": parent,
        "signatures": dict(signatures or {}),
    }


def describe_device(device: str | torch.device) -> dict[str, Any]:
    """Type and name of the device, and the number of threads of a CPU."""
    device = torch.device(device)
    if device.type == "cuda":
        return {"type": "cuda", "name": torch.cuda.get_device_name(device)}
    return {"type": device.type, "name": _processor(), "threads": torch.get_num_threads()}


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_result(path: str | Path, payload: Mapping[str, Any]) -> Path:
    """Write a result as JSON; an older file stays unchanged until all of the new one is on disk. Raises ValueError for
    values that JSON cannot hold, such as infinity, and OSError if the file cannot be written."""
    try:
        text = json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: the result cannot be written as JSON: {error}") from error
    with atomic_writer(path) as file:
        file.write(text + "\n")
    return Path(path)
