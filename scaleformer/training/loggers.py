"""Where a run writes its curves and results: metrics.csv always, Weights & Biases where it is asked for."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from scaleformer.evaluation.translation_run import Evaluation
from scaleformer.training.metrics_csv import MetricsCsv
from scaleformer.training.settings import LoggerConfig

if TYPE_CHECKING:
    from pytorch_lightning.loggers import WandbLogger

log = logging.getLogger(__name__)


def build_loggers(config: LoggerConfig, directory: Path, resumed_at: int | None = None) -> list[Logger]:
    """The loggers of a run in `directory`, which goes on at that step or is new; nothing is started yet."""
    loggers: list[Logger] = [MetricsCsv(directory, resumed_at)]
    if config.name == "wandb":
        from pytorch_lightning.loggers import WandbLogger  # a second to import

        _stage(directory)
        loggers.append(
            WandbLogger(
                project=config.project,
                name=config.run_name,
                save_dir=directory,
                id=None if resumed_at is None else _wandb_id(directory),
            )
        )
    return loggers


@rank_zero_only
def start_loggers(loggers: Sequence[Logger], config: Mapping[str, Any]) -> None:
    """Hand the configuration to Weights & Biases. ValueError where it cannot be reached."""
    for logger in _wandb(loggers):
        import wandb

        try:
            logger.experiment.config.update(dict(config), allow_val_change=True)
        except wandb.errors.Error as error:
            raise _unreachable("logger=wandb", error) from error


@rank_zero_only
def log_results(loggers: Sequence[Logger], evaluation: Evaluation | None, split: str, curves: Path | None) -> None:
    """Give Weights & Biases the final tables and the learning curves, and close its run; what goes wrong there is a
    warning."""
    for logger in _wandb(loggers):
        import wandb

        try:
            if curves is not None:
                logger.log_image("learning_curves", [str(curves)])
            if evaluation is not None:
                _log_evaluation(logger, evaluation, split)
            wandb.finish()
        except (OSError, wandb.errors.Error) as error:  # all of it is in the run's folder
            log.warning("Weights & Biases did not get the results: %s", " ".join(str(error).split()))


def _log_evaluation(logger: WandbLogger, evaluation: Evaluation, split: str) -> None:
    report = evaluation.report
    scores = [[s.metric, s.score, report.documents, s.signature] for s in report.scores]
    logger.log_table(f"{split}/scores", ["metric", "score", "documents", "signature"], scores)
    samples = [
        [sample.id, *("\n".join(text) for text in (sample.source, sample.reference, sample.hypothesis))]
        for sample in evaluation.samples(50)
    ]
    logger.log_table(f"{split}/samples", ["id", "source", "reference", "hypothesis"], samples)
    logger.experiment.summary.update({f"{split}/{s.metric}": s.score for s in report.scores})


def log_report(
    directory: Path, figures: Mapping[str, Path], tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]
) -> None:
    """Give the figures and tables of a report to the Weights & Biases run of a run directory, or to a new one.

    figures  title -> PNG; tables  (title, columns, rows), see `scaleformer.report.page`. ValueError where it cannot be
    reached.
    """
    import wandb

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
    """Have wandb prepare tables and pictures in the run's folder, not at HOME, which need not be writable."""
    os.environ.setdefault("WANDB_DATA_DIR", str((directory / "wandb").absolute()))


def _wandb_settings(directory: Path) -> dict[str, Any]:
    """Project and name under which the run was logged, as far as its configuration says."""
    config = directory / "config.yaml"
    logger = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("logger") if config.is_file() else None
    logger = logger if isinstance(logger, dict) else {}
    return {"project": logger.get("project") or "scaleformer", "name": logger.get("run_name") or directory.name}


def _unreachable(setting: str, error: Exception) -> ValueError:
    return ValueError(f"{setting}: {' '.join(str(error).split())} (WANDB_MODE=offline needs no account)")


def _wandb(loggers: Sequence[Logger]) -> list[WandbLogger]:
    return [logger for logger in loggers if type(logger).__name__ == "WandbLogger"]  # type: ignore[misc]


def _wandb_id(directory: Path) -> str | None:
    """The id of the run that wandb kept in a folder, to go on with it; None if there was none."""
    latest = directory / "wandb" / "latest-run"  # a link to [offline-]run-TIME-ID
    found = re.fullmatch(r"(?:offline-)?run-\d+_\d+-(.+)", latest.resolve().name) if latest.exists() else None
    return found[1] if found else None  # which may have hyphens of its own
