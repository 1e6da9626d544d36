"""Where a run writes its curves and results: metrics.csv always, Weights & Biases where it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from .evaluation.runner import Evaluation
from .metrics_csv import MetricsCsv
from .settings import LoggerConfig

if TYPE_CHECKING:
    from pytorch_lightning.loggers import WandbLogger


def build_loggers(config: LoggerConfig, directory: Path, resumed: bool) -> list[Logger]:
    """The loggers of a run in `directory`; nothing is started yet."""
    loggers: list[Logger] = [MetricsCsv(directory, keep=resumed)]
    if config.name == "wandb":
        from pytorch_lightning.loggers import WandbLogger  # a second to import

        loggers.append(
            WandbLogger(
                project=config.project,
                name=config.run_name,
                save_dir=directory,
                id=_wandb_id(directory) if resumed else None,
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
            raise ValueError(
                f"logger=wandb: {' '.join(str(error).split())} (WANDB_MODE=offline needs no account; logger=csv is "
                "written either way)"
            ) from error


@rank_zero_only
def log_results(loggers: Sequence[Logger], evaluation: Evaluation | None, split: str, curves: Path | None) -> None:
    """Give Weights & Biases the final tables and the learning curves, and close its run."""
    for logger in _wandb(loggers):
        import wandb

        if curves is not None:
            logger.log_image("learning_curves", [str(curves)])
        if evaluation is not None:
            report = evaluation.report
            scores = [[s.metric, s.score, report.documents, s.signature] for s in report.scores]
            logger.log_table(f"{split}/scores", ["metric", "score", "documents", "signature"], scores)
            samples = [
                [sample.id, *("\n".join(text) for text in (sample.source, sample.reference, sample.hypothesis))]
                for sample in evaluation.samples(50)
            ]
            logger.log_table(f"{split}/samples", ["id", "source", "reference", "hypothesis"], samples)
            logger.experiment.summary.update({f"{split}/{s.metric}": s.score for s in report.scores})
        wandb.finish()


def _wandb(loggers: Sequence[Logger]) -> list[WandbLogger]:
    return [logger for logger in loggers if type(logger).__name__ == "WandbLogger"]  # type: ignore[misc]


def _wandb_id(directory: Path) -> str | None:
    """The id of the run that wandb kept in a folder, to go on with it; None if there was none."""
    latest = directory / "wandb" / "latest-run"  # a link to [offline-]run-TIME-ID
    return latest.resolve().name.rsplit("-", 1)[-1] if latest.exists() else None
