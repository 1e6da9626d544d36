"""Wrong settings are reported before anything is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.training.settings import LoggerConfig, Settings, read_settings
from tests.test_configs import CHOICES, configured
from tests.trainings import configure


def settings(*overrides: str) -> Settings:
    config = configure(Path("run"), Path("cache"), *overrides)
    return read_settings(config)  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_shipped_choice_is_valid(choice: str) -> None:
    read_settings(configured(choice, *(["data.hub.name=any"] if choice == "data=hub" else [])))


def test_checking_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    settings()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=-1", r"^seed is -1: it must be an int from 0 to below 4294967296$"),
        ("threads=0", r"threads is 0: it must be an int of at least 1 or null"),
        ("label_smoothing=1", r"label_smoothing is 1: it must be a float from 0 to below 1"),
        ("trainer.max_steps=many", r"trainer.max_steps is 'many': it must be an int"),
        ("trainer.max_steps=0", r"trainer.max_steps is 0: it must be at least 1, or -1 with"),
        ("~label_smoothing", r"^label_smoothing is missing"),
        ("~trainer.max_steps", r"^trainer.max_steps is missing"),
        (
            "trainer.gradient_clip_val=nan",
            r"trainer.gradient_clip_val is nan: it must be a float of at least 0",
        ),
        ("test=false", r"test is false: it must be a group of settings"),
        (
            "model.attention=softmax",
            r"model.attention is 'softmax': choose an attention with a slash, as in model/attention=softmax",
        ),
        (
            "model.attention=null",
            r"model.attention is null: choose an attention with a slash, as in model/attention=softmax",
        ),
        (
            "+model.sites.cross=alibi",
            r"model.sites.cross is 'alibi': choose an attention .*, as in model/attention@model.sites.cross=softmax",
        ),
        ("+model.sites=5", r"model.sites is 5: it must be a group of settings"),
        ("+model.attention.fallback=5", r"model.attention.fallback is 5: it must be one of"),
        ("+model.attention.fallback=sofmax", r"model.attention.fallback is 'sofmax': it must be one of"),
        ("+model.shared_vocabulary=false", r"model.shared_vocabulary: the tokenizers decide this"),
        ("+model.source_vocabulary=9", r"model.source_vocabulary: the tokenizers decide this"),
        (
            "callbacks.ema=null",
            r"callbacks.ema is null: it must be a group of settings: callbacks.ema.decay, ",
        ),
        ("++misspelt=3", r"misspelt: no such setting; there are data, .*, seed"),
        ("trainer.max_time=5", r"trainer.max_time is 5: it must be DD:HH:MM:SS or {name: value} or null"),
        ("trainer.max_steps=-1", r"training would never end: set trainer.max_steps or trainer.max_time"),
        ("trainer.accumulate_grad_batches=0", r"trainer.accumulate_grad_batches is 0: it must be an int of at least 1"),
        ("trainer.log_every_n_steps=0", r"trainer.log_every_n_steps is 0: it must be an int of at least 1"),
        (
            "trainer.val_check_interval=0.5",
            r"trainer.val_check_interval is 0.5: it must be an int .* or DD:HH:MM:SS",
        ),
        ("trainer.gradient_clip_val=-1", r"trainer.gradient_clip_val is -1: it must be a float of at least 0 or null"),
        ("data.max_tokens=1", r"data.max_tokens is 1: it must be an int of at least 3"),
        ("tokenizer.vocab_size=many", r"tokenizer.vocab_size is 'many': it must be an int"),
        ("tokenizer.joint=maybe", r"tokenizer.joint is 'maybe': it must be a bool"),
        ("model.width=wide", r"model.width is 'wide': it must be an int of at least 1"),
        ("model.heads=3", r"model.width is 16: it must be a multiple of model.heads, 3"),
        ("+model.depth=3", r"model.depth: no such setting; there are"),
        ("model.attention.horizon=0", r"model.attention.horizon is 0"),
        ("+model.attention.window=3", r"attention 'segment_recall' has no option window"),
        ("model.attention.name=other", r"model/attention is 'other': it must be one of scaleformer"),
        ("optimizer.learning_rate=fast", r"optimizer.learning_rate is 'fast': it must be a float above 0"),
        ("optimizer.beta1=2", r"optimizer.beta1 is 2: it must be a float from 0 to below 1"),
        ("optimizer.name=sgd", r"optimizer.name is 'sgd': it must be one of adam, adamw"),
        ("schedule.name=step", r"schedule.name is 'step'"),
        ("schedule.warmup_steps=-5", r"schedule.warmup_steps is -5: it must be an int of at least 0"),
        ("decoding.beam_size=0", r"decoding.beam_size is 0: it must be an int of at least 1"),
        ("logger.name=comet", r"logger.name is 'comet': it must be one of csv, wandb, tensorboard, mlflow"),
        ("metrics.tokenize=other", r"metrics.tokenize is 'other': it must be one of auto, 13a, "),
        ("test.samples=-1", r"test.samples is -1: it must be an int of at least 0"),
        ("+callbacks.swa=true", r"callbacks.swa: no such setting; there are checkpoint"),
        ("callbacks.checkpoint.every_n_train_steps=0", r"callbacks.checkpoint.every_n_train_steps is 0"),
        (
            "callbacks.checkpoint.save_every_minutes=0",
            r"callbacks.checkpoint.save_every_minutes is 0: it must be a float",
        ),
        ("callbacks.max_bad_steps=-1", r"callbacks.max_bad_steps is -1: it must be an int of at least 0"),
        (
            "callbacks.checkpoint.monitor=val/ter",
            r"callbacks.checkpoint.monitor is 'val/ter': it must be one of",
        ),
        (
            "callbacks.checkpoint.monitor=val/bleu",
            r"callbacks.checkpoint.mode is min: it must be max, where val/bleu is best",
        ),
        ("callbacks.early_stopping.patience=0", r"callbacks.early_stopping.patience is 0"),
        ("callbacks.ema.decay=1", r"callbacks.ema.decay is 1: it must be a float above 0 and below 1 or null"),
        ("callbacks.ema.start_step=-1", r"callbacks.ema.start_step is -1"),
        ("callbacks.ema.start_step=5", r"callbacks.ema.start_step is 5: of an average, and ema.decay is null"),
        ("emphasis.weight=5", r"emphasis.weight is 5: it is that of emphasis.choices, which is not set"),
        ("callbacks.validation_bleu.examples=-1", r"callbacks.validation_bleu.examples is -1"),
        (
            "callbacks.validation_bleu.decoding.strategy=best",
            r"^callbacks.validation_bleu.decoding.strategy is 'best': it must be one of greedy",
        ),
    ],
    ids=lambda value: value if "=" in value and " " not in value else "",
)
def test_wrong_settings_are_named(override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        settings(override)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("metric", ["val/bleu", "val/chrf"])
def test_monitoring_translations_needs_translations(metric: str) -> None:
    monitor = (f"callbacks.checkpoint.monitor={metric}", "callbacks.checkpoint.mode=max")
    with pytest.raises(ValueError, match=r"needs translations: set callbacks\.validation_bleu\.examples"):
        settings(*monitor, "callbacks.validation_bleu.examples=0")


def test_the_csv_logger_needs_no_other_settings() -> None:
    assert settings().logger == LoggerConfig("csv")
