"""MLflow: Lightning's logger, with the configuration, the final tables and the learning curves."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report every run to its makers; read at import

from mlflow.exceptions import MlflowException
from pytorch_lightning.loggers import MLFlowLogger

from scaleformer.training.run_results import RunResults
from scaleformer.training.settings import LoggerConfig

logging.getLogger("mlflow").setLevel(logging.WARNING)  # it reports its database tables
STORE = "sqlite:///mlflow.db"  # where `mlflow ui` looks
IDENTITY = "mlflow_run"  # the file in a run's folder with the id of its MLflow run


class MlflowRun(MLFlowLogger):
    """A run of MLflow; a resumed training continues it."""

    title = "MLflow"

    def __init__(self, config: LoggerConfig, directory: Path, resumed_at: int | None = None) -> None:
        self.directory = directory
        identity = None
        if resumed_at is not None:
            with suppress(OSError):
                identity = (directory / IDENTITY).read_text(encoding="utf-8").strip() or None
        self.resumed = identity is not None
        self.uri = config.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or STORE
        name = config.run_name or directory.name
        try:
            super().__init__(config.project, name, self.uri, run_id=identity)
        except MlflowException as error:
            raise _unreachable(self.uri, error) from error

    def begin(self, config: Mapping[str, Any]) -> None:
        try:
            identity = str(self.run_id)
            if not self.resumed:  # MLflow takes each setting once
                self.log_hyperparams(dict(config))
            self.experiment.log_dict(identity, dict(config), "config.yaml")  # complete: long settings are cut above
        except MlflowException as error:
            raise _unreachable(self.uri, error) from error
        (self.directory / IDENTITY).write_text(f"{identity}\n", encoding="utf-8")

    def finish(self, results: RunResults) -> None:
        client, identity = self.experiment, str(self.run_id)
        self.log_metrics({name.replace("+", "p"): score for name, score in results.scores.items()}, results.step)
        if results.curves is not None:
            client.log_artifact(identity, str(results.curves))
        for name, table in results.tables.items():
            columns = zip(*table.rows, strict=True)
            content = {title: list(column) for title, column in zip(table.columns, columns, strict=False)}
            client.log_table(identity, content, f"{name}.json")
        self.finalize("success")


def _unreachable(uri: str, error: Exception) -> ValueError:
    return ValueError(f"logger=mlflow: {uri}: {' '.join(str(error).split())} (logger.tracking_uri=URI sets another)")
