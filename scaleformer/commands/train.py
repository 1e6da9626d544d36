"""Train a model and evaluate it: composed from conf/config.yaml and its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from scaleformer.cli.line import last_value
from scaleformer.cli.resume import resumed_arguments
from scaleformer.training.settings import Settings


@dataclass(frozen=True)
class Folder:
    """hydra.run and hydra.sweep."""

    dir: str
    subdir: str


@dataclass(frozen=True)
class HydraNames:
    """Hydra's own settings that are names."""

    run: Folder
    sweep: Folder
    searchpath: tuple[str, ...]


@dataclass(frozen=True)
class Names(Settings):
    """The settings with their types, as far as known; they are handed over as composed."""

    experiment: str
    hydra: HydraNames


def rewrite(arguments: list[str]) -> list[str]:
    """The command line for Hydra: with resume=, the run's original command line comes first. Hydra writes no record:
    the run does, once it owns its folder."""
    if (place := last_value(arguments, "run_dir")) is not None:
        raise ValueError(f"run_dir={place}: this is filled in: set the folder of a run with hydra.run.dir={place}")
    return [*resumed_arguments(arguments), "hydra.output_subdir=null"]


def main(config: DictConfig, given: Sequence[str]) -> float | None:
    """Train in Hydra's folder of the run; return the best value of the metric that decides best.ckpt."""
    from scaleformer.training.run import Start, run  # with Lightning, which takes seconds: not for help or a wrong word

    hydra = HydraConfig.get()
    config.run_dir = hydra.runtime.output_dir  # whatever folder a setting names
    experiment = hydra.runtime.choices.get("experiment")
    runs = f"runs/{experiment}" if experiment else str(Path(hydra.run.dir).parent)
    settings: Any = OmegaConf.to_container(config, resolve=True)
    runtime = OmegaConf.to_container(hydra.runtime, resolve=True)
    record = {"hydra": {"runtime": runtime, "job": {"config_name": hydra.job.config_name}}}
    return run(settings, Start(runs, given, record))
