"""Write a trained model without any pickle, to keep or to pass on, with other options of its attention if wanted.

    scaleformer export checkpoint=RUN output=DIR
    scaleformer export checkpoint=RUN output=DIR "attention={kept: 256}"   # a larger memory, for long documents

DIR has the weights (safetensors), the configuration and the tokenizers; every command takes it as `checkpoint=DIR`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaleformer.checkpoints.changed_attention import change_attention
from scaleformer.checkpoints.model_file import export_model, load_model


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/export.yaml describes them."""

    checkpoint: str
    output: str
    attention: dict[str, Any] | None


def main(options: Options, given: Sequence[str]) -> None:
    loaded = load_model(options.checkpoint)
    if options.attention is not None:
        loaded = change_attention(loaded, options.attention)
    target = Path(options.output)
    export_model(loaded, target)
    print(f"exported {loaded.path} to {target}: scaleformer translate checkpoint={target} input=- output=-")
