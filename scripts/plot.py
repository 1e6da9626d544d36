"""Draw what the files of a run say, or of several side by side: PNG figures, and one HTML page with all of them inside.

python scripts/plot.py run=RUN
python scripts/plot.py runs=[RUN,RUN] output=DIR
"""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from scaleformer.report.page import write_report
from scaleformer.system.errors import NAME, one_line_errors, run_command
from scaleformer.system.schema import check_types, listed


@hydra.main(version_base="1.3", config_path="../conf", config_name="plot")
@one_line_errors()
def main(config: DictConfig) -> None:
    check_types(config, samples=(int, 0), segments=(int, 0), wandb=bool, output=NAME)
    runs = [str(run) for run in listed(config.run) + listed(config.runs)]
    if not runs:
        raise ValueError("no run to draw: give run=RUN or runs=[RUN,RUN]")
    report = write_report(runs, str(config.output or Path(runs[0]) / "plots"), config.samples, config.segments)
    if config.wandb:
        from scaleformer.training.loggers import log_report  # a second to import

        log_report(Path(runs[0]), report.figures, report.tables)
    for path in (*report.figures.values(), report.page):
        print(path)


if __name__ == "__main__":
    run_command(main)
