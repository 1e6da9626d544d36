"""The settings of a run, checked as far as possible before anything is read or written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from scaleformer.checkpoints.run_config import target_language
from scaleformer.data.config import DataConfig
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.metrics import Metrics
from scaleformer.model.transformer import ModelConfig, Transformer
from scaleformer.system.schema import from_mapping
from scaleformer.training.freezing import freeze
from scaleformer.training.optimization import OptimizerConfig, ScheduleConfig

MONITORS = {"val/loss": "min", "val/bleu": "max", "val/chrf": "max"}
LOGGERS = ("csv", "wandb", "tensorboard", "mlflow")
# The top level of conf/config.yaml; groups are checked by their classes, trainer by Lightning.
SCALARS = ("seed", "threads", "label_smoothing", "init_from", "freeze", "resume", "run_dir", "test")
GROUPS = (
    "data",
    "tokenizer",
    "model",
    "optimizer",
    "schedule",
    "trainer",
    "callbacks",
    "logger",
    "decoding",
    "metrics",
)


@dataclass(frozen=True)
class CheckpointConfig:
    """every_n_train_steps, save_every_minutes: of last.ckpt; monitor, mode: the metric of best.ckpt, min or max."""

    every_n_train_steps: int = 500
    monitor: str = "val/loss"
    mode: str = "min"
    save_every_minutes: float | None = None

    def __post_init__(self) -> None:
        _at_least("callbacks.checkpoint.every_n_train_steps", self.every_n_train_steps, 1)
        if self.save_every_minutes is not None and not self.save_every_minutes > 0:
            raise ValueError(
                f"callbacks.checkpoint.save_every_minutes={self.save_every_minutes}: wanted null or a number above 0"
            )
        _one_of("callbacks.checkpoint.monitor", self.monitor, MONITORS)
        if self.mode != MONITORS[self.monitor]:
            raise ValueError(
                f"callbacks.checkpoint.mode={self.mode}: {self.monitor} is best at its {MONITORS[self.monitor]}imum: "
                f"set callbacks.checkpoint.mode={MONITORS[self.monitor]}"
            )


@dataclass(frozen=True)
class EarlyStoppingConfig:
    """patience: training stops after this many validations without a better `checkpoint.monitor`; None = never."""

    patience: int | None = None

    def __post_init__(self) -> None:
        if self.patience is not None:
            _at_least("callbacks.early_stopping.patience", self.patience, 1)


@dataclass(frozen=True)
class EmaConfig:
    """decay of the exponential moving average of the weights, None = no average; starts after start_step steps."""

    decay: float | None = None
    start_step: int = 0

    def __post_init__(self) -> None:
        if self.decay is not None and not 0 < self.decay < 1:
            raise ValueError(f"callbacks.ema.decay={self.decay}: wanted null or a number between 0 and 1")
        _at_least("callbacks.ema.start_step", self.start_step, 0)


@dataclass(frozen=True)
class ValidationBleuConfig:
    """examples translated at each validation (0 = none), and the search."""

    examples: int = 64
    decoding: DecodingConfig = field(default_factory=lambda: DecodingConfig(strategy="greedy"))

    def __post_init__(self) -> None:
        _at_least("callbacks.validation_bleu.examples", self.examples, 0)


@dataclass(frozen=True)
class CallbacksConfig:
    """The group `callbacks`.

    max_bad_steps  this many steps in a row with a NaN or infinite loss or gradient are skipped; one more ends the run
    """

    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    early_stopping: EarlyStoppingConfig = field(default_factory=EarlyStoppingConfig)
    ema: EmaConfig = field(default_factory=EmaConfig)
    validation_bleu: ValidationBleuConfig = field(default_factory=ValidationBleuConfig)
    max_bad_steps: int = 10

    def __post_init__(self) -> None:
        _at_least("callbacks.max_bad_steps", self.max_bad_steps, 0)
        monitor = self.checkpoint.monitor
        if monitor != "val/loss" and self.validation_bleu.examples == 0:
            raise ValueError(
                f"callbacks.checkpoint.monitor={monitor} needs translations: set callbacks.validation_bleu.examples"
            )


@dataclass(frozen=True)
class FinalTest:
    """The evaluation that ends a run: split, samples to show, whether to compute TER."""

    enabled: bool = True
    split: str = "test"
    samples: int = 5
    ter: bool = True

    def __post_init__(self) -> None:
        _at_least("test.samples", self.samples, 0)


@dataclass(frozen=True)
class LoggerConfig:
    """The group `logger`: metrics.csv is always written. Weights & Biases and MLflow use project (MLflow's experiment)
    and run_name; MLflow keeps its runs at tracking_uri."""

    name: str = "csv"
    project: str = "scaleformer"
    run_name: str | None = None
    tracking_uri: str | None = None

    def __post_init__(self) -> None:
        _one_of("logger.name", self.name, LOGGERS)


@dataclass(frozen=True)
class Settings:
    """Every group of the configuration as its class; `model` with vocabularies of size 1 until they are known,
    `metrics` with the tokenizer of the target language (with several corpora, each may have its own)."""

    data: DataConfig
    tokenizer: TokenizerConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    callbacks: CallbacksConfig
    logger: LoggerConfig
    decoding: DecodingConfig
    metrics: Metrics
    test: FinalTest
    init_from: str | None
    freeze: tuple[str, ...]


def read_settings(config: Mapping[str, Any]) -> Settings:
    """The settings of a composed configuration.

    Raises ValueError, in one line that names the setting, for an unknown key, a wrong type, a value out of range,
    settings that exclude each other, and an attention that cannot be built.
    """
    if unknown := [key for key in config if key not in (*SCALARS, *GROUPS)]:
        raise ValueError(f"{unknown[0]}: no such setting; there are {', '.join((*SCALARS, *GROUPS))}")
    for key in (*SCALARS, *GROUPS):
        if key not in config:
            raise ValueError(f"{key} is missing: it cannot be deleted, only set")
    for group in (*GROUPS, "test"):
        _mapping(group, config[group])
    _check_scalars(config)
    _check_trainer(config["trainer"])
    model = dict(config["model"])
    attention, sites = model.pop("attention", None), model.pop("sites", None) or {}
    _mapping("model.sites", sites)
    for site, choice in {"attention": attention, **{f"sites.{name}": value for name, value in sites.items()}}.items():
        if not isinstance(choice, Mapping) and (choice is not None or site == "attention"):
            where = "model/attention" if site == "attention" else f"model/attention@model.{site}"
            raise ValueError(f"model.{site}={choice}: choose an attention with a slash, as in {where}=softmax")
    sized = {"source_vocabulary": 1, "target_vocabulary": 1, "shared_vocabulary": config["tokenizer"]["joint"] is True}
    if fixed := [name for name in sized if name in model]:
        raise ValueError(f"model.{fixed[0]}: the tokenizers decide this: set tokenizer.vocab_size and tokenizer.joint")
    data = from_mapping(DataConfig, config["data"], "data")
    metrics = from_mapping(Metrics, config["metrics"], "metrics")
    settings = Settings(
        data=data,
        tokenizer=from_mapping(TokenizerConfig, config["tokenizer"], "tokenizer"),
        model=replace(from_mapping(ModelConfig, {**model, **sized}, "model"), attention=attention, sites=sites),
        optimizer=from_mapping(OptimizerConfig, config["optimizer"], "optimizer"),
        schedule=from_mapping(ScheduleConfig, config["schedule"], "schedule"),
        callbacks=from_mapping(CallbacksConfig, config["callbacks"], "callbacks"),
        logger=from_mapping(LoggerConfig, config["logger"], "logger"),
        decoding=from_mapping(DecodingConfig, config["decoding"], "decoding"),
        metrics=metrics if data.parts else metrics.for_language(target_language(data)),
        test=from_mapping(FinalTest, config["test"], "test"),
        init_from=config["init_from"],
        freeze=tuple(config["freeze"]),
    )
    if settings.tokenizer.extend is not None and settings.init_from is None:
        raise ValueError(
            f"tokenizer.extend={settings.tokenizer.extend}: this adds pieces to the vocabulary of another run: add "
            "init_from=RUN, or leave it out"
        )
    with torch.device("meta"):
        transformer = Transformer(settings.model)  # the attention of each site checks its own options
        freeze(transformer, config["freeze"])
        try:
            settings.optimizer.build(transformer.named_parameters())
        except ValueError as error:
            raise ValueError(f"optimizer: {error}") from error
    return settings


def _check_scalars(config: Mapping[str, Any]) -> None:
    seed, threads, smoothing = config["seed"], config["threads"], config["label_smoothing"]
    if not _whole(seed) or not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed}: wanted a whole number from 0 to {2**32 - 1}")
    if threads is not None:
        _at_least("threads", threads, 1)
    if isinstance(smoothing, bool) or not isinstance(smoothing, (int, float)) or not 0 <= smoothing < 1:
        raise ValueError(f"label_smoothing={smoothing}: wanted a number of at least 0 and below 1")
    if config["init_from"] is not None and not isinstance(config["init_from"], str):
        raise ValueError(f"init_from={config['init_from']}: wanted null or a run, checkpoint, export or Hub name")
    names = config["freeze"]
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"freeze={names}: wanted a list of names, as in freeze=[encoder]")


def _check_trainer(trainer: Mapping[str, Any]) -> None:
    """Check what Lightning accepts at first and fails on later; it checks the rest itself."""
    read = ("val_check_interval", "gradient_clip_val", "max_time")
    for name in ("max_steps", "accumulate_grad_batches", "log_every_n_steps", *read):
        if name not in trainer:
            raise ValueError(f"trainer.{name} is missing: it cannot be deleted, only set")
    for name, least in (("max_steps", -1), ("accumulate_grad_batches", 1), ("log_every_n_steps", 1)):
        _at_least(f"trainer.{name}", trainer[name], least)
    if trainer["max_steps"] == 0:
        raise ValueError("trainer.max_steps=0: wanted a whole number of at least 1, or -1 with trainer.max_time")
    if trainer.get("compile") not in ("auto", "none"):
        raise ValueError(f"trainer.compile={trainer.get('compile')}: wanted auto or none")
    interval, clip, limit = (trainer[name] for name in read)
    if not (_whole(interval) and interval >= 1) and not _duration(interval):
        raise ValueError(f"trainer.val_check_interval={interval}: wanted a number of batches, or DD:HH:MM:SS")
    if limit is not None and not _duration(limit) and not isinstance(limit, Mapping):  # of units, which Lightning reads
        raise ValueError(f"trainer.max_time={limit}: wanted null or DD:HH:MM:SS, as in 00:01:30:00")
    if clip is not None and (isinstance(clip, bool) or not isinstance(clip, (int, float)) or not clip >= 0):
        raise ValueError(f"trainer.gradient_clip_val={clip}: wanted null or a norm of at least 0")
    if trainer["max_steps"] == -1 and trainer["max_time"] is None and trainer.get("max_epochs") is None:
        raise ValueError("training would never end: set trainer.max_steps or trainer.max_time")


def _mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}={value}: it is a group of settings: set one as {name}.NAME=VALUE")


def _duration(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+:\d\d:\d\d:\d\d", value) is not None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _at_least(name: str, value: Any, least: int) -> None:
    if not _whole(value) or value < least:
        raise ValueError(f"{name}={value}: wanted a whole number of at least {least}")


def _one_of(name: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value}: choose one of {', '.join(choices)}")
