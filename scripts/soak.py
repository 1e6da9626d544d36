"""Train while being killed at random and going on by itself, and compare with a training that was left alone.

python -m scripts.soak --folder DIR --steps 2000 [--seconds 120 300] [--minutes 120] [KEY=VALUE of train ...]
python -m scripts.soak --folder DIR --steps 200 --rows 40 70 --kills 2 --minutes 8 [KEY=VALUE of train ...]

Two trainings of the same settings at once: one in peace, the other killed (`kill -9`, one time in four SIGTERM) after a
random number of seconds, or of rows of its metrics.csv, over and over, each time going on by `resume=auto`. Exit code 1
where a checkpoint was lost, a row of metrics.csv or a bit of the last checkpoint differs (so no document was skipped or
repeated), the training in peace used more than 1% more memory at its end than after its first 10 minutes, there were
fewer kills than wanted, or the time was not enough. Leaves DIR/soak.json.

Seconds also meet a training that is starting or finishing; rows make as many kills on a slow machine as on a fast one.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scaleformer.system.errors import RESUMABLE, one_line_errors
from scaleformer.system.provenance import provenance, write_result
from scaleformer.training.resume import open_checkpoint

TIMES = ("train/tokens_per_second", "train/data_share")  # columns of metrics.csv that no two trainings share
DATA = ("DocumentDataModule", "SeveralCorpora")  # one of both
KEYS = ("state_dict", "current_model_state", "optimizer_states", "lr_schedulers", *DATA, "guard")
WARM_UP = 600.0  # seconds, before memory has to stay where it is
GROWTH = 0.01


def start(run: Path, settings: list[str]) -> subprocess.Popen[bytes]:
    """A training in a session of its own, its output in the run's folder."""
    run.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "scaleformer", "train"]
    command = [*words, *settings, f"hydra.run.dir={run}", "resume=auto", "test.enabled=false"]
    with (run / "soak.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def resident(process: subprocess.Popen[bytes]) -> float:
    """The resident memory of a process in MiB; 0 once it is gone."""
    try:
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(memory: list[tuple[float, float]]) -> float | None:
    """By which share memory (seconds, MiB) is larger in the last fifth of the time than in the fifth after the
    warm-up, at its least: what the heap holds free comes and goes. None where there is no such time."""
    late = [(second, size) for second, size in memory if second > WARM_UP and size]
    if len(late) < 10:
        return None
    fifth = len(late) // 5
    return min(size for _, size in late[-fifth:]) / min(size for _, size in late[:fifth]) - 1


def by_minute(memory: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The least and the most memory of each minute, in MiB."""
    minutes: dict[int, list[float]] = {}
    for second, size in memory:
        minutes.setdefault(int(second // 60), []).append(round(size, 1))
    return [(min(sizes), max(sizes)) for sizes in minutes.values()]


def differences(run: Path, other: Path) -> list[str]:
    """What two finished runs do not share, in words."""
    found = []
    rows = [read_rows(folder) for folder in (run, other)]
    for mine, theirs in zip(*rows, strict=False):
        if mine != theirs:
            found.append(f"metrics.csv at step {mine['step']}")
            break
    if len(rows[0]) != len(rows[1]):
        found.append(f"metrics.csv: {len(rows[0])} and {len(rows[1])} rows")
    found += [f"{path.relative_to(run.parent)} is left behind" for r in (run, other) for path in r.rglob(".*.tmp")]
    contents = [torch.load(r / "checkpoints" / "last.ckpt", weights_only=True) for r in (run, other)]
    return found + [f"last.ckpt: {key}" for key in KEYS if not same(*(content.get(key) for content in contents))]


def read_rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [{key: value for key, value in row.items() if key not in TIMES} for row in csv.DictReader(file)]


def same(one: Any, other: Any) -> bool:
    """Whether nested values are alike, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


@dataclass(frozen=True)
class Chances:
    """When the training is killed: after as many seconds, or rows of metrics.csv since it went on."""

    low: float
    high: float
    rows: bool
    seed: int


class Victim:
    """The training that is killed over and over, and goes on each time."""

    def __init__(self, run: Path, settings: list[str], chances: Chances) -> None:
        self.run = run
        self.settings = settings
        self.chances = chances
        self.random = random.Random(chances.seed)
        self.kills = {"SIGKILL": 0, "SIGTERM": 0}
        self.steps = [0]  # of the checkpoints to go on from, kill by kill
        self.process: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        self.process = start(self.run, self.settings)
        self.due = self._done() + self.random.uniform(self.chances.low, self.chances.high)

    def _done(self) -> float:
        """What `due` is compared with: the time in seconds, or the step that was logged last."""
        if not self.chances.rows:
            return time.monotonic()
        rows = read_rows(self.run) if (self.run / "metrics.csv").is_file() else []
        return float(rows[-1]["step"]) if rows else 0.0

    def look(self) -> None:
        """Kill it where it is time, and let it go on; `process` is None once it has trained to the end.

        Raises ValueError where it failed, or lost a checkpoint.
        """
        assert self.process is not None
        if self.process.poll() is not None:
            if self.process.returncode:
                raise ValueError(f"a training that went on failed: see {self.run / 'soak.log'}")
            self.process = None
        elif self._done() >= self.due:
            self._kill("SIGTERM" if self.random.random() < 0.25 else "SIGKILL")

    def _kill(self, name: str) -> None:
        assert self.process is not None
        self.process.send_signal(signal.Signals[name])
        code = self.process.wait()
        if name == "SIGTERM" and code not in (0, RESUMABLE, -signal.SIGTERM):  # the last: still importing
            raise ValueError(f"SIGTERM ended it with exit code {code}: see {self.run / 'soak.log'}")
        if code == 0:  # it had just trained to the end
            self.process = None
            return
        self.kills[name] += 1
        self.steps.append(checked_step(self.run, self.steps[-1]))
        print(f"{name} number {self.kills[name]}, checkpoint of step {self.steps[-1]}", flush=True)
        self._start()


def soak(folder: Path, settings: list[str], chances: Chances, limit: float) -> dict[str, Any]:
    """Train both ways; returns what happened. Raises ValueError where a training fails or a checkpoint is lost."""
    began = time.monotonic()
    peace = folder / "peace"
    calm = start(peace, settings)
    victim = Victim(folder / "killed", settings, chances)
    memory: list[tuple[float, float]] = []
    try:
        while calm.poll() is None or victim.process is not None:
            time.sleep(0.1)
            now = time.monotonic()
            if now - began > limit:
                raise ValueError(f"the trainings took longer than {limit / 60:.0f} minutes: take fewer --steps")
            if calm.poll() is None and (not memory or now - began - memory[-1][0] >= 1):
                memory.append((now - began, resident(calm)))
            if calm.returncode:
                raise ValueError(f"the training in peace failed: see {peace / 'soak.log'}")
            if victim.process is not None:
                victim.look()
    finally:
        for process in (calm, victim.process):
            if process is not None and process.poll() is None:
                process.kill()
    return {
        "kills": victim.kills,
        "checkpoint_steps": victim.steps,
        "seconds": round(time.monotonic() - began),
        "differences": differences(peace, victim.run),
        "memory_mib": {"first": memory[0][1], "most": max(m for _, m in memory), "last": memory[-1][1]},
        "memory_growth": growth(memory),
        "memory_by_minute": by_minute(memory),
    }


def checked_step(run: Path, before: int) -> int:
    """The step of the checkpoint to go on from; ValueError where it is lost or older than `before`."""
    if not list(run.glob("checkpoints/*.ckpt")):
        if before:
            raise ValueError(f"{run}: its checkpoints are gone")
        return 0
    path, _ = open_checkpoint(run)
    step = int(torch.load(path, weights_only=True)["global_step"])
    if path.name != "last.ckpt" or step < before:
        raise ValueError(f"{run}: the checkpoint of step {before} was lost; there is {path.name} of step {step}")
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the runs go; must not be there yet")
    parser.add_argument("--steps", type=int, required=True, help="trainer.max_steps of both")
    parser.add_argument("--seconds", type=float, nargs=2, default=(120.0, 300.0), help="between kills, least and most")
    parser.add_argument("--rows", type=int, nargs=2, help="the same in rows of metrics.csv, instead of seconds")
    parser.add_argument("--kills", type=int, default=1, help="how many there have to be at least")
    parser.add_argument("--minutes", type=float, default=120.0, help="the limit of it all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of train.py")
    arguments = parser.parse_intermixed_args()
    if arguments.folder.exists():
        raise ValueError(f"{arguments.folder} is there already: name a new --folder")
    settings = [*arguments.settings, f"trainer.max_steps={arguments.steps}", "trainer.log_every_n_steps=1"]
    low, high = arguments.rows or arguments.seconds
    chances = Chances(low, high, arguments.rows is not None, arguments.seed)
    result = soak(arguments.folder.resolve(), settings, chances, 60 * arguments.minutes)
    write_result(arguments.folder / "soak.json", {**provenance(seed=arguments.seed), "settings": settings, **result})
    kills, grown = sum(result["kills"].values()), result["memory_growth"]
    print(
        f"{kills} kills survived in {result['seconds']} s, {arguments.steps} steps; "
        f"differences: {', '.join(result['differences']) or 'none'}; "
        f"memory after 10 minutes: {'not that long' if grown is None else f'{grown:+.2%}'}"
    )
    if kills < arguments.kills:
        raise ValueError(f"{kills} kills are fewer than --kills {arguments.kills}: take more --steps")
    if result["differences"] or (grown or 0) > GROWTH:
        sys.exit(1)


if __name__ == "__main__":
    with one_line_errors():
        main()
