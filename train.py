"""Train and evaluate a model: `python train.py [experiment=NAME] [key=value ...]`."""

from __future__ import annotations

import scaleformer  # noqa: F401 (before Lightning, which makes tensors: see there)

# isort: split

import logging
import math
import signal
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from rich.console import Console

from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.checkpoints.model_file import make_package
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.errors import MissingSplit
from scaleformer.data.report import DataReport
from scaleformer.evaluation.final import evaluate_translations
from scaleformer.evaluation.translation_run import Evaluation
from scaleformer.model.transformer import Transformer
from scaleformer.report.curves import plot_learning_curves
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import Interrupted, is_out_of_memory, one_line_errors, run_command
from scaleformer.system.provenance import provenance, write_result
from scaleformer.training.callbacks import ValidationBleu, WeightAverage, build_callbacks
from scaleformer.training.guard import StepGuard
from scaleformer.training.interruption import SignalWatch, interrupted
from scaleformer.training.loggers import build_loggers, log_results, start_loggers
from scaleformer.training.module import TranslationModule
from scaleformer.training.resume import (
    check_settings,
    open_checkpoint,
    read_tokenizers,
    record_overrides,
    refuse_held,
    resumed_arguments,
)
from scaleformer.training.run_folder import FINISHED, claimed, write_config, write_environment, write_status
from scaleformer.training.settings import Settings, read_settings
from scaleformer.training.sharding import ShardedStrategy
from scaleformer.translation.translator import Translator

# How torch's back-ends say that the other end of an exchange is no longer there.
PEER_GONE = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket Timeout",
    "NCCL communicator",
)


def run(cfg: DictConfig) -> None:
    """Compose, check, build, fit, test. Everything that can be wrong with the input shows before the first step.

    Raises `Interrupted` after a signal, when what there is to save is saved.
    """
    quieten()
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
    settings = read_settings(config)
    directory = Path(config["run_dir"])
    checkpoint, package = open_checkpoint(config["resume"]) if config["resume"] else (None, None)
    refuse_held(directory, checkpoint)
    if package is not None:
        check_settings(package, config)
    step = 0 if package is None else package["step"]
    set_up_cpu(config["threads"])

    with SignalWatch() as signals:
        data = DocumentDataModule(settings.data, settings.tokenizer, read_tokenizers(package) if package else None)
        loggers = build_loggers(settings.logger, directory, None if package is None else step)
        trainer = build_trainer(
            config["trainer"],
            callbacks=build_callbacks(settings.callbacks, directory, data, config["seed"], signals),
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
            StepGuard(settings.callbacks.max_bad_steps),
            config["r_drop"],
        )
        if not trainer.is_global_zero:
            fit(trainer, module, data, checkpoint, directory)
            return
        with claimed(directory):
            start_loggers(loggers, config)
            data.trainer = trainer  # the report counts its processes, before Lightning itself tells the data of them
            check_lengths(module.model, settings, data)
            record(directory, config, settings, data, trainer, step)
            parameters = sum(p.numel() for p in module.parameters())
            print(f"run {directory}: {parameters:,} parameters on {trainer.accelerator.__class__.__name__}", flush=True)
            try:
                try:
                    fit(trainer, module, data, checkpoint, directory)
                finally:
                    with suppress(OSError):  # of a full disk what training itself could not write is told
                        if (report := data.trained_report) is not None:
                            write_counts(directory, report, fingerprints(data, settings), trainer, config["seed"])
                if not trainer.global_step:
                    limits = ", ".join(f"trainer.{n}={config['trainer'].get(n)}" for n in ("max_time", "max_epochs"))
                    raise ValueError(f"no step was trained before the limit was reached ({limits}): raise it")
                curves = plot_learning_curves(directory)
                print(f"trained to step {trainer.global_step:,}: {directory}", flush=True)
                evaluation = test(settings, directory, data) if settings.test.enabled else None
                log_results(loggers, evaluation, settings.test.split, curves)
            except BaseException as error:
                with suppress(OSError):  # a full disk, say, which is the error already
                    state = "interrupted" if isinstance(error, Interrupted) else "failed"
                    write_status(directory, state, max(trainer.global_step, step))  # 0 before the checkpoint is read
                raise
            write_status(directory, FINISHED, trainer.global_step)


def fit(
    trainer: pl.Trainer, module: TranslationModule, data: DocumentDataModule, checkpoint: Path | None, directory: Path
) -> None:
    """Train; what ends it too early takes the other processes down, and is said in one line where it is no fault of
    the program. Raises `Interrupted` after a signal, in the last step too."""
    try:
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
        if stop := module.stopping or module.stop:  # no step has followed that would have said so
            raise interrupted(stop, trainer.global_step, directory)
    except Interrupted:
        if trainer.global_rank and isinstance(trainer.strategy.cluster_environment, LightningEnvironment):  # type: ignore[attr-defined]
            sys.exit(0)  # the first process, which has started this one, takes other codes for a failure and kills all
        raise
    except BaseException as error:
        launcher = trainer.strategy.launcher
        if isinstance(launcher, _SubprocessScriptLauncher):
            launcher.kill(signal.SIGKILL)  # they may wait in an exchange with this one for half an hour
        if isinstance(error, MisconfigurationException):
            raise ValueError(f"Lightning: {error}") from error
        if is_out_of_memory(error):
            raise ValueError(module.describe_memory(data.config.batch_tokens, error)) from error
        reason = " ".join(str(error).split())
        if reason.startswith("DataLoader worker"):
            raise ValueError(
                f"a process that makes batches was ended from outside, for want of memory perhaps ({reason}): lower "
                "data.num_workers; go on by resume="
            ) from error
        if any(sign in reason for sign in PEER_GONE):
            raise ValueError(f"another process of this run has ended, its own message says why ({reason})") from error
        raise


def quieten() -> None:
    """Leave out what Lightning tells of itself."""
    for name in ("utilities.rank_zero", "trainer.connectors.checkpoint_connector"):  # advertisements
        logging.getLogger(f"pytorch_lightning.{name}").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # batches are ready-made arrays
    warnings.filterwarnings("ignore", message="Total length of `list` across ranks is zero")  # no validation split
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec")  # its own, with torch 2.13
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self\.log\('step'")  # alike everywhere
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")  # that of the resume
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self\.log.*sync_dist")  # reduced already
    warnings.filterwarnings("ignore", message="You're using the WeightAveraging callback")  # fsdp is refused with it
    warnings.filterwarnings("ignore", message="Be aware that when using `ckpt_path`")  # callbacks follow the settings


def build_trainer(options: dict[str, Any], **parts: Any) -> pl.Trainer:
    """The trainer; ValueError in one line for options that Lightning refuses, or that cannot go well."""
    chosen = {**options, "strategy": ShardedStrategy()} if options["strategy"] == "fsdp" else options
    try:
        trainer = pl.Trainer(
            **chosen,
            **parts,
            check_val_every_n_epoch=None,  # validation counts steps: an epoch of documents may be days long
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
    except KeyError as error:  # SLURM's variables, in a shell of salloc for instance
        raise ValueError(f"trainer: there is no {error} in the environment: start it by srun or torchrun") from error
    except (MisconfigurationException, AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"trainer: {error}") from error
    check_trainer(trainer, options)
    use_tensor_cores(trainer.strategy.root_device, trainer.precision)
    trainer.precision_plugin.convert_input = _unchanged  # type: ignore[assignment]  # a Batch is frozen
    return trainer


def use_tensor_cores(device: torch.device, precision: str) -> None:
    """On a GPU that trains in mixed precision, let TF32 do for the products that autocast leaves in fp32, such as the
    scores of recall: it keeps more digits than bf16 does, and is many times as fast as fp32 [NVIDIA 2020, A100 tensor
    core GPU architecture]. `32-true` stays fp32."""
    if device.type == "cuda" and precision.endswith("-mixed"):
        torch.set_float32_matmul_precision("high")


def _unchanged(batch: Any) -> Any:
    return batch


def check_trainer(trainer: pl.Trainer, options: dict[str, Any]) -> None:
    """ValueError for what Lightning takes, and fails with in the midst of training."""
    strategy, precision = options["strategy"], options["precision"]
    for name in ("reload_dataloaders_every_n_epochs", "overfit_batches"):
        if options.get(name):
            raise ValueError(
                f"trainer.{name}={options[name]}: epochs follow one another whatever Lightning reloads: leave it out "
                "(few documents to learn by heart: data.synthetic.train, or a file of them)"
            )
    if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy, ShardedStrategy)):
        raise ValueError(f"trainer.strategy={strategy}: wanted auto, ddp or fsdp")
    launcher = trainer.strategy.launcher
    if launcher is not None and not isinstance(launcher, _SubprocessScriptLauncher):
        raise ValueError(f"trainer.strategy={strategy} copies this process: wanted ddp, which starts new ones")
    if trainer.precision.endswith("-true") and trainer.precision != "32-true":  # 64, too, which Lightning writes out
        raise ValueError(f"trainer.precision={precision}: weights stay in fp32, wanted 32-true, bf16-mixed or 16-mixed")
    if trainer.world_size > 1 and isinstance(options["val_check_interval"], str):
        raise ValueError(
            f"trainer.val_check_interval={options['val_check_interval']}: the clocks of {trainer.world_size} processes "
            "differ, and some would wait for the others: wanted a number of batches"
        )
    if isinstance(trainer.strategy, ShardedStrategy):
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, ValidationBleu):
                raise ValueError(
                    "trainer.strategy=fsdp has no process with all weights that could translate in validations: set "
                    "callbacks.validation_bleu.examples=0 (scripts/evaluate_bleu.py takes its checkpoints)"
                )
            if isinstance(callback, WeightAverage):
                raise ValueError("trainer.strategy=fsdp does not average weights: set callbacks.ema.decay=null")


def prepare(data: DocumentDataModule, settings: Settings) -> None:
    """Make the data ready and see that every split that the run will want is there and can be read."""
    data.source("train")
    if settings.test.enabled:
        try:
            data.documents(settings.test.split)
        except MissingSplit as error:
            raise ValueError(
                f"{error} (wanted for the final evaluation: test.split names another, test.enabled=false does without)"
            ) from error
    try:
        fingerprints(data, settings)
    except MissingSplit as error:
        if settings.data.format != "hub":
            raise
        raise ValueError(
            f'{error} (data.hub.train and data.hub.valid name the splits; data.hub.valid="" where there is none)'
        ) from error
    if settings.callbacks.early_stopping.patience and "valid" not in data.sources:
        raise ValueError("callbacks.early_stopping.patience needs a valid split, and the data have none")
    data.prepare_data()


def check_lengths(model: Transformer, settings: Settings, data: DocumentDataModule) -> None:
    """Raises ValueError where a text, as far as they are known, is longer than the model can read or write."""
    limits = model.most_source_tokens, model.most_target_tokens
    if limits == (math.inf, math.inf):
        return
    longest = {name: (split.longest_source, split.longest_target) for name, split in data.report.splits.items()}
    advice = dict.fromkeys(longest, "cut at a smaller data.max_tokens")
    if settings.test.enabled:  # whole documents; a translation ends at the limit, which is counted
        corpus = data.encoded(settings.test.split)
        tokens = int(np.bincount(corpus.document_of, corpus.source_lengths).max()) + 1
        longest["final evaluation"], advice["final evaluation"] = (tokens, 0), "set test.enabled=false"
    for name, lengths in longest.items():
        for side, length, most in zip(("source", "target"), lengths, limits, strict=True):
            if length > most:
                raise ValueError(
                    f"{name}: a {side} has {length:,} tokens, and the attention takes {most:,} at most: raise its "
                    f"model.attention.max_positions or max_length, or {advice[name]}"
                )


def fingerprints(data: DocumentDataModule, settings: Settings) -> dict[str, str]:
    """Those of the splits that the run reads: others may be named that are not there."""
    wanted = {"train", "valid"} | ({settings.test.split} if settings.test.enabled else set())
    return data.fingerprint(split for split in data.sources if split in wanted)


def record(
    directory: Path,
    config: dict[str, Any],
    settings: Settings,
    data: DocumentDataModule,
    trainer: pl.Trainer,
    step: int,
) -> None:
    """Leave the configuration, the counts of the data and the step it goes on from in the run's folder; show the
    counts."""
    report = data.report  # raises for what data.overlong refuses, before anything is written
    runs = None
    if HydraConfig.initialized():
        hydra_config = HydraConfig.get()
        experiment = hydra_config.runtime.choices.get("experiment")
        runs = f"runs/{experiment}" if experiment else str(Path(hydra_config.run.dir).parent)
        if config["resume"]:
            record_overrides(directory, hydra_config.overrides.task)
    write_config(directory, config, runs)
    seeds = {"seed": config["seed"], "data.seed": config["data"]["seed"]}
    read = fingerprints(data, settings)
    write_environment(directory, trainer.strategy.root_device, trainer.world_size, seeds, read)
    write_status(directory, "training", step)
    write_counts(directory, report, read, trainer, config["seed"])


def write_counts(directory: Path, report: DataReport, read: dict[str, str], trainer: pl.Trainer, seed: int) -> None:
    """Leave a report of the data, whose fingerprints are given, in the run's folder, and show it."""
    conditions = provenance(trainer.strategy.root_device, seed)
    content = {**conditions, "fingerprint": read, **report.to_dict()}
    write_result(directory / "results" / "data.json", content)
    Console().print(report.table())


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
        conditions={"data": fingerprints(data, settings)},
    )


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
@one_line_errors()
def main(cfg: DictConfig) -> None:
    cfg.run_dir = HydraConfig.get().runtime.output_dir  # where Hydra's record is, whatever folder a setting names
    run(cfg)


if __name__ == "__main__":
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # type: ignore[assignment]
    with one_line_errors():
        sys.argv[1:] = resumed_arguments(sys.argv[1:])
    run_command(main)
