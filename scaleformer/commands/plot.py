"""Draw the results of one or several runs: PNG figures, and one HTML page with all of them inside.

scaleformer plot run=RUN
scaleformer plot runs=[RUN,RUN] output=DIR
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scaleformer.report.page import write_report
from scaleformer.system.schema import Natural, listed


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/plot.yaml describes them."""

    run: str | None
    runs: str | tuple[str, ...]
    output: str | None
    samples: Natural
    segments: Natural
    wandb: bool


def main(options: Options, given: Sequence[str]) -> None:
    runs = [str(run) for run in listed(options.run) + listed(options.runs)]
    if not runs:
        raise ValueError("no run to draw: give run=RUN or runs=[RUN,RUN]")
    report = write_report(runs, str(options.output or Path(runs[0]) / "plots"), options.samples, options.segments)
    if options.wandb:
        from scaleformer.training.wandb_logger import log_report  # takes a second to import

        log_report(Path(runs[0]), report.figures, report.tables)
    for path in (*report.figures.values(), report.page):
        print(path)
