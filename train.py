"""Train and evaluate a model: `python train.py [experiment=NAME] [key=value ...]`."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
import torch
import yaml
from omegaconf import DictConfig, OmegaConf

from scaleformer.callbacks import build_callbacks
from scaleformer.checkpoint import find_checkpoint, make_package
from scaleformer.cli import one_line_errors, run_command
from scaleformer.data.config import DataConfig, from_mapping
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.evaluation.report import evaluate_translations
from scaleformer.evaluation.runner import Evaluation
from scaleformer.lightning_module import TranslationModule
from scaleformer.metrics_csv import MetricsCsv
from scaleformer.model.transformer import ModelConfig, Transformer
from scaleformer.optimization import OptimizerConfig, ScheduleConfig
from scaleformer.plots import plot_learning_curves
from scaleformer.translator import Translator


def run(cfg: DictConfig) -> None:
    """Compose, build, fit, test."""
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)  # advertisements
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # batches are ready-made arrays
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec")  # Lightning's own, with torch 2.13
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
    directory = Path(config["run_dir"])
    if config["threads"]:
        torch.set_num_threads(config["threads"])
    pl.seed_everything(config["seed"], verbose=False)

    data = DocumentDataModule(
        from_mapping(DataConfig, config["data"], "data"),
        from_mapping(TokenizerConfig, config["tokenizer"], "tokenizer"),
    )
    data.prepare_data()
    model_config = ModelConfig(
        source_vocabulary=data.source_tokenizer.vocab_size,
        target_vocabulary=data.target_tokenizer.vocab_size,
        shared_vocabulary=config["tokenizer"]["joint"],
        **config["model"],
    )
    package = make_package(model_config, config, data.source_tokenizer, data.target_tokenizer)
    module = TranslationModule(
        Transformer(model_config),
        package,
        OptimizerConfig(**config["optimizer"]),
        ScheduleConfig(**config["schedule"]),
        config["label_smoothing"],
    )
    trainer = pl.Trainer(
        **config["trainer"],
        check_val_every_n_epoch=None,  # validation counts steps: an epoch of documents may be days long
        callbacks=build_callbacks(config["callbacks"], directory, data.target_tokenizer),
        logger=build_loggers(config, directory),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    if trainer.is_global_zero:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)), encoding="utf-8")
        parameters = sum(p.numel() for p in module.parameters())
        print(f"run {directory}: {parameters:,} parameters on {trainer.accelerator.__class__.__name__}", flush=True)
    trainer.fit(module, data, ckpt_path=resume_from(config["resume"]), weights_only=True)

    if trainer.is_global_zero:
        plot_learning_curves(directory)
        if config["test"]["enabled"]:
            test(config, directory, data)


def test(config: dict[str, Any], directory: Path, data: DocumentDataModule) -> Evaluation:
    """Translate the test documents with the best checkpoint; print samples and the BLEU table, write the results."""
    chosen = config["test"]
    translator = Translator.load(directory)
    return evaluate_translations(
        translator,
        data.documents(chosen["split"]),
        translator.decoding,
        directory / "results",
        split=chosen["split"],
        metrics=chosen["metrics"],
        samples=chosen["samples"],
        ter=chosen["ter"],
        conditions={"data": data.fingerprint()},
    )


def build_loggers(config: dict[str, Any], directory: Path) -> list[Any]:
    """metrics.csv always; Weights & Biases where it is asked for."""
    loggers: list[Any] = [MetricsCsv(directory)]
    choice = config["logger"]
    if choice["name"] == "wandb":
        from pytorch_lightning.loggers import WandbLogger  # starts a service of its own on import

        wandb = WandbLogger(project=choice["project"], name=choice["run_name"], save_dir=directory)
        wandb.experiment.config.update(config)
        loggers.append(wandb)
    elif choice["name"] != "csv":
        raise ValueError(f"logger.name is {choice['name']!r}: choose one of csv, wandb")
    return loggers


def resume_from(run_directory: str | None) -> Path | None:
    """The last checkpoint of the run to go on with."""
    if run_directory is None:
        return None
    last = Path(run_directory) / "checkpoints" / "last.ckpt"
    return last if last.is_file() else find_checkpoint(run_directory)


def resumed_arguments(arguments: list[str]) -> list[str]:
    """`resume=RUN` repeats the overrides that RUN was started with, in RUN's folder, before those given now.

    Raises ValueError where RUN is no run directory.
    """
    chosen = [a.split("=", 1)[1] for a in arguments if a.startswith("resume=")]
    if not chosen or chosen[-1] in ("", "null"):
        return arguments
    directory = Path(chosen[-1])
    saved = directory / ".hydra" / "overrides.yaml"
    if not saved.is_file():
        raise ValueError(f"resume={directory}: no run to resume there ({saved} is missing)")
    before = [o for o in yaml.safe_load(saved.read_text(encoding="utf-8")) or [] if not o.startswith("resume=")]
    return [*before, *arguments, f"hydra.run.dir={directory}"]


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
@one_line_errors()
def main(cfg: DictConfig) -> None:
    run(cfg)


if __name__ == "__main__":
    with one_line_errors():
        sys.argv[1:] = resumed_arguments(sys.argv[1:])
    run_command(main)
