"""metrics.csv, the logger that every run has."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from scaleformer.system.files import atomic_writer


class MetricsCsv(Logger):
    """One row a logged step in `directory`/metrics.csv, with a column `step` and one for each metric.

    Lightning's own CSVLogger deletes the file of a resumed run, and splits training and validation of a step over two
    rows. This one keeps the rows up to the resumed step and drops later ones (a killed run has logged steps that its
    checkpoint does not know). It replaces the file as a whole, so that it is never half-written.

    resumed_at  the step up to which existing rows belong to the run; None: none do. The first logged row removes the
                others
    Raises ValueError where the rows of a resumed run are not metrics.
    """

    def __init__(self, directory: str | Path, resumed_at: int | None = None) -> None:
        super().__init__()
        self.path = Path(directory) / "metrics.csv"
        self._rows: list[dict[str, Any]] = []
        if resumed_at is not None and self.path.is_file():
            self._rows = [row for row in self._read() if row["step"] <= resumed_at]

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def log_dir(self) -> str:
        return str(self.path.parent)

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        step = step or 0
        if not self._rows or self._rows[-1]["step"] != step:
            self._rows.append({"step": step})
        self._rows[-1].update(metrics)

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: the run's config.yaml holds them."""

    def _read(self) -> list[dict[str, Any]]:
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                rows: list[dict[str, Any]] = [{k: v for k, v in row.items() if v != ""} for row in csv.DictReader(file)]
            for row in rows:
                row["step"] = int(row["step"])
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise ValueError(f"{self.path}: not the metrics of a run (every row has a step): move it away") from error
        return rows

    @rank_zero_only
    def save(self) -> None:
        if not self._rows:
            return
        columns = ["step", *sorted({key for row in self._rows for key in row} - {"step"})]
        with atomic_writer(self.path) as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if status == "success":  # after a failure, rows are saved already, and this file may be the cause
            self.save()
