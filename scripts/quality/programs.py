"""The other programs, each in an environment of its own, and the job that each is given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

DRIVERS = Path(__file__).parent  # the programs for these environments, which lack this package
HUGGING_FACE, JOEYNMT, EOLE, OURS = "huggingface", "joeynmt", "eole", "scaleformer"
#: The calls of `pip install` of each program, after that of torch. JoeyNMT pins a protobuf that newer packages refuse.
INSTALLATION: Mapping[str, Sequence[Sequence[str]]] = {
    HUGGING_FACE: (("transformers==5.23.0", "accelerate==1.15.0"),),
    JOEYNMT: (
        ("numpy", "packaging", "pyyaml", "sentencepiece==0.2.1", "importlib_metadata"),
        ("sacrebleu", "tensorboard", "matplotlib", "tqdm"),
        ("--no-deps", "joeynmt==2.3.0", "subword-nmt==0.3.8"),
    ),
    EOLE: (("eole==0.6.4", "aiohttp"),),  # which it imports and does not ask for
}


class Failed(Exception):
    """A program could not be installed, or did not end well; one line."""


def call(command: Sequence[str], log: Path, threads: int = 1) -> None:
    """Run a command to its end, what it says going to `log`. Raises Failed with its last line."""
    log.parent.mkdir(parents=True, exist_ok=True)
    counts = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        code = subprocess.call(command, stdout=file, stderr=file, env={**os.environ, **counts, **quiet})
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        raise Failed(f"{said[-1][:200]} (exit code {code}, see {log})")


def environment(program: str, folder: Path) -> Path:
    """The Python of a program's environment, which is made where it is not there. Raises Failed."""
    python, done = folder / program / "bin" / "python", folder / program / "installed"
    if not done.exists():
        shutil.rmtree(folder / program, ignore_errors=True)
        log = folder / f"{program}.log"
        log.unlink(missing_ok=True)
        call([sys.executable, "-m", "venv", str(folder / program)], log)
        torch = f"torch=={version('torch').split('+')[0]}"  # ours
        for packages in ((torch,), *INSTALLATION[program]):
            call([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], log)
        done.touch()
    return python


def phase(name: str, work: Path, command: Sequence[str], threads: int) -> dict[str, Any]:
    """The facts of a phase of a row, `train` or `translate`, whose command leaves them in WORK/NAME.json; a phase that
    has them already is not run again. Raises Failed."""
    facts = work / f"{name}.json"
    if not facts.exists():
        call(command, work / f"{name}.log", threads)
    return json.loads(facts.read_text(encoding="utf-8"))


def run_program(program: str, python: Path, job: Mapping[str, Any], work: Path) -> tuple[dict[str, Any], list[str]]:
    """Train and translate by another program; its facts and what it wrote, a line for each of the test. Raises Failed.

    A training that was interrupted begins anew.
    """
    if not (work / "train.json").exists():
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    request = work / "job.json"
    request.write_text(json.dumps({**job, "work": str(work)}, indent=2), encoding="utf-8")
    facts: dict[str, Any] = {}
    for name in ("train", "translate"):
        driver = str(DRIVERS / f"train_{program}.py")
        facts |= phase(name, work, [str(python), driver, str(request), name], job["threads"])
        if not facts["updates"]:
            (work / "train.json").unlink()
            raise Failed(f"no update was trained in {job['seconds'] / 60:g} minutes: raise --minutes")
    return facts, (work / "test.output").read_text(encoding="utf-8").splitlines()
