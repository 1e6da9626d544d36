"""Train a model and evaluate it: composed from conf/config.yaml and its groups."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from scaleformer.commands.resume import resumed_arguments
from scaleformer.training.run import run


def rewrite(arguments: list[str]) -> list[str]:
    """The command line that Hydra is given: with resume=, that which the run was started with goes first."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # type: ignore[assignment]
    return resumed_arguments(arguments)


def main(config: DictConfig, given: Sequence[str]) -> None:
    """Train in Hydra's folder of the run."""
    record = HydraConfig.get()
    config.run_dir = record.runtime.output_dir  # where Hydra's record is, whatever folder a setting names
    experiment = record.runtime.choices.get("experiment")
    runs = f"runs/{experiment}" if experiment else str(Path(record.run.dir).parent)
    settings: Any = OmegaConf.to_container(config, resolve=True)
    run(settings, runs, given)
