"""Average the weights of several checkpoints into one for translation.

scaleformer average checkpoints=[RUN/checkpoints/best.ckpt,RUN/checkpoints/last.ckpt] output=FILE.ckpt
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scaleformer.checkpoints.averaging import average_checkpoints
from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.system.files import check_file
from scaleformer.system.schema import listed


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/average.yaml describes them."""

    checkpoints: str | tuple[str, ...]
    output: str


def main(options: Options, given: Sequence[str]) -> None:
    check_file("output", options.output)
    checkpoints = [str(path) for path in listed(options.checkpoints)]
    if Path(options.output).exists():  # perhaps the state of a training, which an average cannot resume
        raise ValueError(f"output={options.output} exists already: give another name, or remove it")
    SafeCheckpointIO().save_checkpoint(average_checkpoints(checkpoints), options.output)
    print(f"averaged {len(checkpoints)} checkpoints into {options.output}: scaleformer evaluate "
          f"checkpoint={options.output}")  # fmt: skip
