"""The loggers of a run: metrics.csv always, and the one that `logger=` names."""

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
    """The loggers of a run in `directory`, new or resumed at a step; none is started yet. Raises ValueError where the
    chosen logger is not installed, or has no place to write to."""
    loggers: list[Logger] = [MetricsCsv(directory, resumed_at)]
    try:
        if config.name == "wandb":  # each takes a second to import
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
    """Hand the configuration to the loggers. Raises ValueError where one cannot be reached."""
    for logger in _takers(loggers):
        logger.begin(config)


@rank_zero_only
def log_results(loggers: Sequence[Logger], results: RunResults) -> None:
    """Hand the final tables and the learning curves to the loggers and end their runs; failures become warnings."""
    for logger in _takers(loggers):
        try:
            logger.finish(results)
        except Exception as error:  # any error of that library: the run's folder holds all results
            log.warning("%s did not get the results: %s", logger.title, " ".join(str(error).split()))


def _takers(loggers: Sequence[Logger]) -> list[ResultsLogger]:
    return [cast(ResultsLogger, logger) for logger in loggers if not isinstance(logger, MetricsCsv)]
