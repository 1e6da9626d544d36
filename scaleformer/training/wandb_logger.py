"""Weights & Biases: Lightning's logger, with the configuration, the final tables and the learning curves; and the
figures of a report."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb
import yaml
from pytorch_lightning.loggers import WandbLogger

from scaleformer.training.run_results import RunResults
from scaleformer.training.settings import LoggerConfig


class WandbRun(WandbLogger):
    """A run of Weights & Biases; a resumed training continues it."""

    title = "Weights & Biases"

    def __init__(self, config: LoggerConfig, directory: Path, resumed_at: int | None = None) -> None:
        _stage(directory)
        identity = None if resumed_at is None else _wandb_id(directory)
        super().__init__(project=config.project, name=config.run_name, save_dir=directory, id=identity)

    def begin(self, config: Mapping[str, Any]) -> None:
        try:
            self.experiment.config.update(dict(config), allow_val_change=True)
        except wandb.errors.Error as error:
            raise _unreachable("logger=wandb", error) from error

    def finish(self, results: RunResults) -> None:
        if results.curves is not None:
            self.log_image("learning_curves", [str(results.curves)])
        for name, table in results.tables.items():
            self.log_table(name, list(table.columns), [list(row) for row in table.rows])
        if results.scores:
            self.experiment.summary.update(dict(results.scores))
        wandb.finish()


def log_report(
    directory: Path, figures: Mapping[str, Path], tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]
) -> None:
    """Log the figures and tables of a report to the Weights & Biases run of a run directory, or to a new one.

    figures  title -> PNG; tables  (title, columns, rows), see `scaleformer.report.page`. Raises ValueError where
    Weights & Biases cannot be reached.
    """
    _stage(directory)
    identity = _wandb_id(directory)
    settings = _wandb_settings(directory)
    try:
        with wandb.init(dir=directory, id=identity, resume="allow" if identity else None, **settings) as run:
            content: dict[str, Any] = {
                f"report/{title}": wandb.Image(str(path), caption=title) for title, path in figures.items()
            }
            for title, columns, rows in tables:
                content[f"report/tables/{title}"] = wandb.Table(
                    list(columns), [list(row) for row in rows], allow_mixed_types=True
                )
            run.log(content)
    except wandb.errors.Error as error:
        raise _unreachable("wandb=true", error) from error


def _stage(directory: Path) -> None:
    """Have wandb stage tables and images in the run's folder: HOME may not be writable."""
    os.environ.setdefault("WANDB_DATA_DIR", str((directory / "wandb").absolute()))


def _wandb_settings(directory: Path) -> dict[str, Any]:
    """Project and name of the logged run, from its configuration where recorded."""
    config = directory / "config.yaml"
    logger = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("logger") if config.is_file() else None
    logger = logger if isinstance(logger, dict) else {}
    return {"project": logger.get("project") or "scaleformer", "name": logger.get("run_name") or directory.name}


def _unreachable(setting: str, error: Exception) -> ValueError:
    return ValueError(f"{setting}: {' '.join(str(error).split())} (WANDB_MODE=offline needs no account)")


def _wandb_id(directory: Path) -> str | None:
    """The id of the wandb run in a folder, to continue it; None if there is none."""
    latest = directory / "wandb" / "latest-run"  # a link to [offline-]run-TIME-ID
    found = re.fullmatch(r"(?:offline-)?run-\d+_\d+-(.+)", latest.resolve().name) if latest.exists() else None
    return found[1] if found else None  # an id may contain hyphens
