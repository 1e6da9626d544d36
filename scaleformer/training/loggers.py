"""Where a run writes its curves and results: metrics.csv always, and where `logger=` says."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from scaleformer.training.metrics_csv import MetricsCsv
from scaleformer.training.run_results import ResultsLogger, RunResults
from scaleformer.training.settings import LoggerConfig

log = logging.getLogger(__name__)


def build_loggers(config: LoggerConfig, directory: Path, resumed_at: int | None = None) -> list[Logger]:
    """The loggers of a run in `directory`, which goes on at that step or is new; nothing is started yet.

    ValueError where the one asked for is not installed, or has no place to write to.
    """
    loggers: list[Logger] = [MetricsCsv(directory, resumed_at)]
    try:
        if config.name == "wandb":  # each of them takes a second to import
            from scaleformer.training.wandb_logger import WandbRun

            loggers.append(WandbRun(config, directory, resumed_at))
        elif config.name == "tensorboard":
            from scaleformer.training.tensorboard_logger import TensorBoardRun

            loggers.append(TensorBoardRun(directory, resumed_at))
        elif config.name == "mlflow":
            from scaleformer.training.mlflow_logger import MlflowRun

            loggers.append(MlflowRun(config, directory, resumed_at))
    except ModuleNotFoundError as error:
        install = f"pip install 'scaleformer[{config.name}]'"
        raise ValueError(f"logger={config.name} needs a package that is not installed: {install}") from error
    return loggers


@rank_zero_only
def start_loggers(loggers: Sequence[Logger], config: Mapping[str, Any]) -> None:
    """Hand them the configuration. ValueError where one cannot be reached."""
    for logger in _takers(loggers):
        logger.begin(config)


@rank_zero_only
def log_results(loggers: Sequence[Logger], results: RunResults) -> None:
    """Give them the final tables and the learning curves, and end their runs; what goes wrong there is a warning."""
    for logger in _takers(loggers):
        try:
            logger.finish(results)
        except Exception as error:  # of whatever kind that library has: all of it is in the run's folder
            log.warning("%s did not get the results: %s", logger.title, " ".join(str(error).split()))


def _takers(loggers: Sequence[Logger]) -> list[ResultsLogger]:
    return [cast(ResultsLogger, logger) for logger in loggers if not isinstance(logger, MetricsCsv)]
