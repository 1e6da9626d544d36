"""Train and evaluate a model: `python train.py [experiment=NAME] [key=value ...]`."""

from __future__ import annotations

import logging
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
import yaml
from hydra.core.hydra_config import HydraConfig
from lightning_fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from scaleformer.callbacks import build_callbacks
from scaleformer.checkpoint import make_package
from scaleformer.checkpoint_io import SafeCheckpointIO
from scaleformer.cli import one_line_errors, run_command, set_threads
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.evaluation.report import evaluate_translations
from scaleformer.evaluation.results import atomic_writer, provenance, write_result
from scaleformer.evaluation.runner import Evaluation
from scaleformer.lightning_module import TranslationModule
from scaleformer.loggers import build_loggers, log_results, start_loggers
from scaleformer.model.transformer import Transformer
from scaleformer.plots import plot_learning_curves
from scaleformer.resume import last_checkpoint, read_package, read_tokenizers, record_overrides, resumed_arguments
from scaleformer.settings import Settings, read_settings
from scaleformer.translator import Translator


def run(cfg: DictConfig) -> None:
    """Compose, check, build, fit, test. Everything that can be wrong with the input shows before the first step."""
    quieten()
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
    settings = read_settings(config)
    directory = Path(config["run_dir"])
    checkpoint = last_checkpoint(config["resume"]) if config["resume"] else None
    package = read_package(checkpoint, config) if checkpoint else None
    if checkpoint is None and list(directory.glob("checkpoints/*.ckpt")):
        raise ValueError(f"{directory} holds a run: go on with it by resume={directory}, or take another hydra.run.dir")
    set_threads(config["threads"])

    data = DocumentDataModule(settings.data, settings.tokenizer, read_tokenizers(package) if package else None)
    loggers = build_loggers(settings.logger, directory, resumed=checkpoint is not None)
    trainer = build_trainer(
        config["trainer"],
        callbacks=build_callbacks(settings.callbacks, directory, data),
        logger=loggers,
        plugins=[SafeCheckpointIO()],
    )
    prepare(data, settings)

    pl.seed_everything(config["seed"], verbose=False)
    model_config = replace(
        settings.model,
        source_vocabulary=data.source_tokenizer.vocab_size,
        target_vocabulary=data.target_tokenizer.vocab_size,
    )
    module = TranslationModule(
        Transformer(model_config),
        make_package(model_config, config, data.source_tokenizer, data.target_tokenizer),
        settings.optimizer,
        settings.schedule,
        config["label_smoothing"],
    )
    start_loggers(loggers, config)
    if trainer.is_global_zero:
        record(directory, config, data, trainer)
        parameters = sum(p.numel() for p in module.parameters())
        print(f"run {directory}: {parameters:,} parameters on {trainer.accelerator.__class__.__name__}", flush=True)
    try:
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    except MisconfigurationException as error:
        raise ValueError(f"Lightning: {error}") from error
    except SystemExit:  # its answer to Ctrl-C
        raise KeyboardInterrupt from None

    if trainer.is_global_zero:
        curves = plot_learning_curves(directory)
        print(f"trained to step {trainer.global_step:,}: {directory}", flush=True)
        evaluation = test(settings, directory, data) if settings.test.enabled else None
        log_results(loggers, evaluation, settings.test.split, curves)


def quieten() -> None:
    """Leave out what Lightning tells of itself."""
    for name in ("utilities.rank_zero", "trainer.connectors.checkpoint_connector"):  # advertisements
        logging.getLogger(f"pytorch_lightning.{name}").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # batches are ready-made arrays
    warnings.filterwarnings("ignore", message="Total length of `list` across ranks is zero")  # no validation split
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec")  # its own, with torch 2.13
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self\.log\('step'")  # alike everywhere
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")  # that of the resume


def build_trainer(options: dict[str, Any], **parts: Any) -> pl.Trainer:
    """The trainer; ValueError in one line for options that Lightning refuses."""
    try:
        return pl.Trainer(
            **options,
            **parts,
            check_val_every_n_epoch=None,  # validation counts steps: an epoch of documents may be days long
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
    except (MisconfigurationException, AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"trainer: {error}") from error


def prepare(data: DocumentDataModule, settings: Settings) -> None:
    """Make the data ready and see that every split that the run will want is there and can be read."""
    data.source("train")
    if settings.test.enabled:
        try:
            data.documents(settings.test.split)
        except ValueError as error:
            raise ValueError(f"{error} (wanted for the final evaluation: test.split, test.enabled)") from error
    if settings.callbacks.early_stopping.patience and "valid" not in data.sources:
        raise ValueError("callbacks.early_stopping.patience needs a valid split, and the data have none")
    data.prepare_data()


def record(directory: Path, config: dict[str, Any], data: DocumentDataModule, trainer: pl.Trainer) -> None:
    """Leave the configuration and the counts of the data in the run's folder; show the counts."""
    counts = {"fingerprint": data.fingerprint(), **data.report.to_dict()}  # raises for what data.overlong refuses
    with atomic_writer(directory / "config.yaml") as file:
        yaml.safe_dump(config, file, sort_keys=False, allow_unicode=True)
    if config["resume"] and HydraConfig.initialized():
        record_overrides(directory, HydraConfig.get().overrides.task)
    conditions = provenance(trainer.strategy.root_device, config["seed"])
    write_result(directory / "results" / "data.json", {**conditions, **counts})
    Console().print(data.report.table())


def test(settings: Settings, directory: Path, data: DocumentDataModule) -> Evaluation:
    """Translate the test documents with the best checkpoint; print samples and the BLEU table, write the results."""
    chosen = settings.test
    translator = Translator.load(directory)
    return evaluate_translations(
        translator,
        data.documents(chosen.split),
        translator.decoding,
        directory / "results",
        split=chosen.split,
        metrics=chosen.metrics,
        samples=chosen.samples,
        ter=chosen.ter,
        conditions={"data": data.fingerprint()},
    )


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
@one_line_errors()
def main(cfg: DictConfig) -> None:
    run(cfg)


if __name__ == "__main__":
    with one_line_errors():
        sys.argv[1:] = resumed_arguments(sys.argv[1:])
    run_command(main)
