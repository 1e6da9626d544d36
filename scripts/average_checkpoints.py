"""Average the weights of several checkpoints into one to translate with.

python scripts/average_checkpoints.py checkpoints=[RUN/checkpoints/best.ckpt,RUN/checkpoints/last.ckpt] output=FILE.ckpt
"""

from __future__ import annotations

import os
from pathlib import Path

import hydra
import torch
from omegaconf import DictConfig

from scaleformer.averaging import average_checkpoints
from scaleformer.cli import one_line_errors, run_command


@hydra.main(version_base="1.3", config_path="../conf", config_name="average_checkpoints")
@one_line_errors()
def main(config: DictConfig) -> None:
    content = average_checkpoints([str(path) for path in config.checkpoints])
    target = Path(config.output)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        torch.save(content, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    print(f"the mean of {len(config.checkpoints)} checkpoints is in {target}: python scripts/evaluate_bleu.py "
          f"checkpoint={target}")  # fmt: skip


if __name__ == "__main__":
    run_command(main)
