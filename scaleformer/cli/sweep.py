"""The jobs of a sweep: a failed one does not end the others, and a table follows the last."""

from __future__ import annotations

import csv
import os
import sys
import traceback
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from scaleformer.cli.line import unquoted
from scaleformer.system.errors import Interrupted, one_line, wants_traceback
from scaleformer.system.files import atomic_writer


@dataclass(frozen=True)
class Job:
    """One job of a sweep with its result; error: why there is no result."""

    number: int
    overrides: tuple[str, ...]
    folder: str
    result: Any = None
    error: str | None = None


class Jobs:
    """Runs the jobs of a sweep one after the other; anything else runs as usual.

    A context manager around all jobs: prints their table at the end, with exit code 1 if any has failed.
    """

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.metric = "result"

    def run(self, task: Callable[[], Any], config: DictConfig) -> Any:
        """The result of a task; None for a failed job of a sweep, after printing its error."""
        hydra = HydraConfig.get()
        if hydra.mode is not RunMode.MULTIRUN:
            return task()
        if not self.jobs and (table := Path(hydra.runtime.output_dir).parent / "sweep.csv").exists():
            raise ValueError(f"hydra.sweep.dir={table.parent}: holds a sweep, whose table would be lost: name another")
        job = (hydra.job.num, tuple(hydra.overrides.task), hydra.runtime.output_dir)
        self.metric = OmegaConf.select(config, "callbacks.checkpoint.monitor") or self.metric
        try:
            result = task()
        except Interrupted as error:
            self.jobs.append(Job(*job, error=str(error)))
            raise
        except Exception as error:
            text = one_line(error)
            if text is None or wants_traceback():
                traceback.print_exc()
            text = text or f"{type(error).__name__}: {error}"
            print(f"error in job {job[0]} ({' '.join(job[1])}): {text}", file=sys.stderr)
            self.jobs.append(Job(*job, error=text))
            return None
        self.jobs.append(Job(*job, result=result))
        return result

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if not self.jobs or os.environ.get("LOCAL_RANK", "0") != "0":  # other processes of a job know no results
            return
        shared = set.intersection(*(set(job.overrides) for job in self.jobs)) if len(self.jobs) > 1 else set()
        settings = [" ".join(override for override in job.overrides if override not in shared) for job in self.jobs]
        table = Table("job", Column("settings", overflow="fold"), self.metric, Column("folder", overflow="fold"))
        for job, text in zip(self.jobs, settings, strict=True):
            shown = "failed" if job.error else f"{job.result:.4f}" if isinstance(job.result, float) else ""
            table.add_row(str(job.number), Text(text), shown, Text(os.path.relpath(job.folder)))
        Console().print(table)
        self._write_csv(shared)
        failed = [(job, text) for job, text in zip(self.jobs, settings, strict=True) if job.error]
        for job, text in failed:
            print(f"job {job.number} failed ({text}): {job.error}", file=sys.stderr)
        if failed and (kind is None or issubclass(kind, ValueError)):  # a sweeper that needs a result
            sys.exit(1)

    def _write_csv(self, shared: Container[str]) -> None:
        """sweep.csv beside the folders of the jobs, with a column for each setting that differs."""
        settings = [dict(o.partition("=")[::2] for o in job.overrides if o not in shared) for job in self.jobs]
        names = list(dict.fromkeys(name for found in settings for name in found))
        path = Path(self.jobs[0].folder).parent / "sweep.csv"
        with atomic_writer(path) as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["job", *names, self.metric, "error", "folder"])
            for job, found in zip(self.jobs, settings, strict=True):
                values = [unquoted(found.get(name, "")) for name in names]
                rows.writerow([job.number, *values, job.result, job.error, os.path.relpath(job.folder, path.parent)])
        print(f"written to {os.path.relpath(path)}")
