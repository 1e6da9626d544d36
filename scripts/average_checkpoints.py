"""Average the weights of several checkpoints into one to translate with.

python scripts/average_checkpoints.py checkpoints=[RUN/checkpoints/best.ckpt,RUN/checkpoints/last.ckpt] output=FILE.ckpt
"""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from scaleformer.checkpoints.averaging import average_checkpoints
from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.system.errors import GIVEN_NAME, one_line_errors, run_command
from scaleformer.system.schema import check_types, listed


@hydra.main(version_base="1.3", config_path="../conf", config_name="average_checkpoints")
@one_line_errors()
def main(config: DictConfig) -> None:
    check_types(config, output=GIVEN_NAME)
    checkpoints = [str(path) for path in listed(config.checkpoints)]
    if Path(str(config.output)).exists():  # the state of a training, perhaps, which an average cannot go on from
        raise ValueError(f"output={config.output} exists already: take another name, or remove it")
    SafeCheckpointIO().save_checkpoint(average_checkpoints(checkpoints), str(config.output))
    print(f"the mean of {len(checkpoints)} checkpoints is in {config.output}: python scripts/evaluate_bleu.py "
          f"checkpoint={config.output}")  # fmt: skip


if __name__ == "__main__":
    run_command(main)
