"""Trainings of a few steps: the configured program, or the bare module on batches of random tokens."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from scaleformer.batch import Batch
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.training.module import TranslationModule
from scaleformer.training.optimization import OptimizerConfig, ScheduleConfig
from tests.helpers import make_batch
from tests.runs import EMPTY

CONF = Path(__file__).parents[1] / "conf"
SMALL = (
    "experiment=smoke",
    "model.width=16",
    "model.feedforward=16",
    "model.heads=2",
    "data.synthetic.train=60",
    "data.batch_tokens=512",
    "tokenizer.vocab_size=412",
    "callbacks.validation_bleu.examples=2",
    "callbacks.validation_bleu.decoding.max_length_ratio=0.1",
    "test.enabled=false",
    "threads=1",
)
FAST = (
    "trainer.log_every_n_steps=1",
    "callbacks.validation_bleu.examples=0",
    "callbacks.checkpoint.every_n_train_steps=3",
)
Command = Callable[..., tuple[int, str, str]]  # arguments -> exit code, stdout and stderr


def configure(run: Path, cache: Path, *overrides: str) -> dict[str, Any]:
    """A small run in the folder `run`, as `training.run` takes it."""
    overrides = (f"run_dir={run}", f"data.cache_dir={cache}", *overrides)
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    if any((CONF / str(override.key_or_group).split("@")[0]).is_dir() for override in parsed):
        config = composed(*overrides)
    else:  # plain values, set as Hydra does, without reading all files again
        config = deepcopy(composed())
        ConfigLoaderImpl._apply_overrides_to_config(parsed, config)
    return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]


@lru_cache
def composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", [*SMALL, *overrides])


def read_metrics(run: Path, *without: str) -> list[dict[str, str]]:
    """The rows of metrics.csv, without some of its columns."""
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [{k: v for k, v in row.items() if k not in without} for row in csv.DictReader(file)]


def only_line(result: tuple[int, str, str]) -> str:
    """The one-line error of a command that must fail before the first step."""
    code, _, err = result
    assert code == 1
    assert err.count("\n") == 1, err
    return err.strip()


def weights(run: Path, key: str = "state_dict") -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)[key]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_module(dropout: float = 0.0, label_smoothing: float = 0.1, **model: Any) -> TranslationModule:
    """A seeded module with one layer per side, a vocabulary of 20 and a constant learning rate."""
    pl.seed_everything(1, verbose=False)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "feedforward": 16, "heads": 2}
    config = ModelConfig(20, 20, dropout=dropout, **{**sizes, **model})
    schedule = ScheduleConfig("constant", warmup_steps=1)
    return TranslationModule(
        Transformer(config),
        EMPTY,
        OptimizerConfig(learning_rate=0.01),
        schedule,
        label_smoothing,
    )


class Batches:
    """Batches of two documents with different lengths and tokens, or given batches; a loader without a length."""

    def __init__(self, count: int, batches: list[Batch] | None = None) -> None:
        self.batches = batches or [
            make_batch([([3, 2 + i % 3], [4]), ([5], [2, 2 + i % 2])], seeds=[2 * i, 2 * i + 1]) for i in range(count)
        ]

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


def make_trainer(folder: Path, callbacks: list[Any] | None = None, **options: Any) -> pl.Trainer:
    """A trainer as the train command builds it, on the CPU."""
    return pl.Trainer(
        default_root_dir=folder,
        callbacks=callbacks,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{
            "accelerator": "cpu",
            "max_steps": 4,
            "logger": False,
            "log_every_n_steps": 1,
            "enable_checkpointing": False,
            **options,
        },
    )


class Words:
    """Replaces the data module: every token is a word; the examples are those of `Batches` unless names are given."""

    def __init__(self, *names: str) -> None:
        self.config = SimpleNamespace(consecutive=False)
        self.parts: dict[str, Any] = {}
        self.names = names or ("0", "1")

    def validation_ids(self) -> list[str]:
        return list(self.names)

    @property
    def target_tokenizer(self) -> Any:
        return SimpleNamespace(decode_segments=lambda tokens: [" ".join(f"w{t}" for t in tokens)])
