"""TensorBoard: Lightning's logger, with the configuration, the final tables and the learning curves."""

from __future__ import annotations

import html
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from pytorch_lightning.loggers import TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter  # noqa: F401  # fails here if not installed

from scaleformer.training.run_results import RunResults, RunTable


class TensorBoardRun(TensorBoardLogger):
    """Events in the folder `tensorboard` of a run; a resumed run drops the events after its step."""

    title = "TensorBoard"

    def __init__(self, directory: Path, resumed_at: int | None = None) -> None:
        purge: dict[str, Any] = {} if resumed_at is None else {"purge_step": resumed_at + 1}
        super().__init__(directory, name="", version="tensorboard", default_hp_metric=False, **purge)

    def begin(self, config: Mapping[str, Any]) -> None:
        self.log_hyperparams(dict(config))

    def finish(self, results: RunResults) -> None:
        self.log_metrics(dict(results.scores), results.step)
        if results.curves is not None:
            self.experiment.add_image("learning_curves", pyplot.imread(results.curves), results.step, dataformats="HWC")
        for name, table in results.tables.items():
            self.experiment.add_text(name, markdown(table), results.step)
        self.finalize("success")


def markdown(table: RunTable) -> str:
    """A Markdown table for TensorBoard's text panel; texts of several lines take several rows, side by side."""
    lines = [table.columns, ["---"] * len(table.columns)]
    for row in table.rows:
        lines += zip_longest(*(str(cell).split("\n") for cell in row), fillvalue="")
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """A text with Markdown and HTML escaped."""
    return "".join(f"&#{ord(c)};" if c in "\\`*_{}[]()#+!|~" else c for c in html.escape(text))
