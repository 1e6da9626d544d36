"""Write a trained model without any pickle, to keep or to pass on, with other options of its attention if wanted.

    python scripts/export.py checkpoint=RUN output=DIR
    python scripts/export.py checkpoint=RUN output=DIR "attention={kept: 256}"   # a larger memory, for long documents

DIR has the weights (safetensors), the configuration and the tokenizers; every command takes it as `checkpoint=DIR`.
"""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from scaleformer.checkpoints.model_file import change_attention, export_model, load_model
from scaleformer.system.errors import GIVEN_NAME, one_line_errors, run_command
from scaleformer.system.schema import check_types


@hydra.main(version_base="1.3", config_path="../conf", config_name="export")
@one_line_errors()
def main(config: DictConfig) -> None:
    check_types(config, checkpoint=GIVEN_NAME, output=GIVEN_NAME)
    loaded = load_model(str(config.checkpoint))
    if config.attention is not None:
        options = OmegaConf.to_container(config.attention) if OmegaConf.is_config(config.attention) else None
        if not isinstance(options, dict):
            raise ValueError(f"attention={config.attention}: wanted options and their values, such as {{kept: 256}}")
        loaded = change_attention(loaded, {str(name): value for name, value in options.items()})
    target = Path(str(config.output))
    export_model(loaded, target)
    print(f"exported {loaded.path} to {target}: python scripts/translate.py checkpoint={target} input=- output=-")


if __name__ == "__main__":
    run_command(main)
