"""The settings of a run, checked as far as possible before anything is read or written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import torch

from scaleformer.checkpoints.run_config import target_language
from scaleformer.data.config import DataConfig
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.metrics import Metrics
from scaleformer.model.adapter import AdapterConfig, add_adapters
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.system.schema import Natural, OneOf, Positive, Range, from_mapping, hints_of, shown
from scaleformer.training.emphasis import EmphasisConfig
from scaleformer.training.freezing import freeze
from scaleformer.training.optimization import OptimizerConfig, ScheduleConfig

MONITORS = {"val/loss": "min", "val/bleu": "max", "val/chrf": "max"}


@dataclass(frozen=True)
class Duration:
    """The form of a time."""

    def holds(self, value: str) -> bool:
        return re.fullmatch(r"\d+:\d\d:\d\d:\d\d", value) is not None

    def name(self, kind: str) -> str:
        return "DD:HH:MM:SS"


@dataclass(frozen=True)
class CheckpointConfig:
    """every_n_train_steps, save_every_minutes: of last.ckpt; monitor, mode: the metric of best.ckpt, min or max."""

    every_n_train_steps: Positive = 500
    monitor: Annotated[str, OneOf(MONITORS)] = "val/loss"
    mode: Literal["min", "max"] = "min"
    save_every_minutes: Annotated[float, Range(gt=0)] | None = None

    def __post_init__(self) -> None:
        if self.mode != MONITORS[self.monitor]:
            raise ValueError(
                f"callbacks.checkpoint.mode is {self.mode}: it must be {MONITORS[self.monitor]}, where {self.monitor} "
                "is best"
            )


@dataclass(frozen=True)
class EarlyStoppingConfig:
    """patience: training stops after this many validations without a better `checkpoint.monitor`; None = never."""

    patience: Positive | None = None


@dataclass(frozen=True)
class EmaConfig:
    """decay of the exponential moving average of the weights, None = no average; starts after start_step steps."""

    decay: Annotated[float, Range(gt=0, lt=1)] | None = None
    start_step: Natural = 0

    def __post_init__(self) -> None:
        if self.start_step and self.decay is None:
            raise ValueError(f"callbacks.ema.start_step is {self.start_step}: of an average, and ema.decay is null")


@dataclass(frozen=True)
class ValidationBleuConfig:
    """examples translated at each validation (0 = none), and the search."""

    examples: Natural = 64
    decoding: DecodingConfig = field(default_factory=lambda: DecodingConfig(strategy="greedy"))


@dataclass(frozen=True)
class CallbacksConfig:
    """The group `callbacks`.

    max_bad_steps  this many steps in a row with a NaN or infinite loss or gradient are skipped; one more ends the run
    """

    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    early_stopping: EarlyStoppingConfig = field(default_factory=EarlyStoppingConfig)
    ema: EmaConfig = field(default_factory=EmaConfig)
    validation_bleu: ValidationBleuConfig = field(default_factory=ValidationBleuConfig)
    max_bad_steps: Natural = 10

    def __post_init__(self) -> None:
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
    samples: Natural = 5
    ter: bool = True


@dataclass(frozen=True)
class LoggerConfig:
    """The group `logger`: metrics.csv is always written. Weights & Biases and MLflow use project (MLflow's experiment)
    and run_name; MLflow keeps its runs at tracking_uri."""

    name: Literal["csv", "wandb", "tensorboard", "mlflow"] = "csv"
    project: str = "scaleformer"
    run_name: str | None = None
    tracking_uri: str | None = None


@dataclass(frozen=True)
class TrainerConfig:
    """What of the group `trainer` Lightning would accept, and fail on later; it checks the rest itself."""

    max_steps: Annotated[int, Range(ge=-1)]
    accumulate_grad_batches: Positive
    log_every_n_steps: Positive
    compile: Literal["auto", "none"]
    val_check_interval: Positive | Annotated[str, Duration()]
    gradient_clip_val: Annotated[float, Range(ge=0)] | None
    max_time: Annotated[str, Duration()] | dict[str, Any] | None  # of units, which Lightning reads
    max_epochs: Any = None

    def __post_init__(self) -> None:
        if self.max_steps == 0:
            raise ValueError("trainer.max_steps is 0: it must be at least 1, or -1 with trainer.max_time")
        if self.max_steps == -1 and self.max_time is None and self.max_epochs is None:
            raise ValueError("training would never end: set trainer.max_steps or trainer.max_time")


@dataclass(frozen=True)
class Settings:
    """The configuration, with each group as its class; `model` with vocabularies of size 1 until they are known,
    `metrics` with the tokenizer of the target language (with several corpora, each may have its own)."""

    data: DataConfig
    tokenizer: TokenizerConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    trainer: dict[str, Any]
    callbacks: CallbacksConfig
    logger: LoggerConfig
    decoding: DecodingConfig
    metrics: Metrics
    test: FinalTest
    seed: Annotated[int, Range(ge=0, lt=2**32)]
    threads: Positive | None
    label_smoothing: Annotated[float, Range(ge=0, lt=1)]
    init_from: str | None
    freeze: tuple[str, ...]
    resume: str | None
    run_dir: str
    adapter: AdapterConfig = field(default_factory=AdapterConfig, kw_only=True)
    emphasis: EmphasisConfig = field(default_factory=EmphasisConfig, kw_only=True)


def read_settings(config: Mapping[str, Any]) -> Settings:
    """The settings of a composed configuration. Raises ValueError, in one line that names the setting, for an unknown
    key, a wrong type, a value out of range, settings that exclude each other, and an attention that cannot be built."""
    model, tokenizer = config.get("model"), config.get("tokenizer")
    if isinstance(model, Mapping) and isinstance(tokenizer, Mapping):
        config = {**config, "model": _unsized(model, tokenizer)}
    settings = from_mapping(Settings, config, "")
    settings.emphasis.forms()  # a file that cannot be read is said before anything is written
    known = hints_of(TrainerConfig)
    from_mapping(TrainerConfig, {k: v for k, v in settings.trainer.items() if k in known}, "trainer")
    if not settings.data.parts:
        settings = replace(settings, metrics=settings.metrics.for_language(target_language(settings.data)))
    if settings.tokenizer.extend is not None and settings.init_from is None:
        raise ValueError(
            f"tokenizer.extend is {settings.tokenizer.extend}: this adds pieces to the vocabulary of another run: add "
            "init_from=RUN, or leave it out"
        )
    if settings.adapter.rank and (settings.init_from is None or settings.tokenizer.extend is not None):
        given = f"adapter.rank is {settings.adapter.rank}: this trains small matrices beside a model that stays"
        need = "add init_from=MODEL" if settings.init_from is None else "leave tokenizer.extend out"
        raise ValueError(f"{given}: {need}, or set adapter.rank=0")
    with torch.device("meta"):
        transformer = Transformer(settings.model)  # the attention of each site checks its own options
        if settings.adapter.rank:
            add_adapters(transformer, transformer.state_dict(), settings.adapter)
        freeze(transformer, settings.freeze)
        try:
            settings.optimizer.build(transformer.named_parameters())
        except ValueError as error:
            raise ValueError(f"optimizer: {error}") from error
    return settings


def _unsized(model: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """The group `model` with vocabularies of size 1."""
    sites = model.get("sites") or {}
    if not isinstance(sites, Mapping):
        raise ValueError(f"model.sites is {shown(sites)}: it must be a group of settings: model.sites.encoder, ...")
    choices = {f"sites.{name}": choice for name, choice in sites.items() if choice is not None}
    for site, choice in {"attention": model.get("attention"), **choices}.items():
        if not isinstance(choice, Mapping):
            where = "model/attention" if site == "attention" else f"model/attention@model.{site}"
            raise ValueError(
                f"model.{site} is {shown(choice)}: choose an attention with a slash, as in {where}=softmax"
            )
    sized = {"source_vocabulary": 1, "target_vocabulary": 1, "shared_vocabulary": tokenizer.get("joint") is True}
    if fixed := [name for name in sized if name in model]:
        raise ValueError(f"model.{fixed[0]}: the tokenizers decide this: set tokenizer.vocab_size and tokenizer.joint")
    return {**model, **sized, "sites": sites}
