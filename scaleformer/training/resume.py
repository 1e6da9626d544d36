"""Resuming a run: the command line that started it, and its last checkpoint."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from scaleformer.checkpoints.model_file import find_checkpoint
from scaleformer.checkpoints.package import read_checkpoint
from scaleformer.checkpoints.run_config import PATHS, from_here
from scaleformer.system.files import atomic_writer

OVERRIDES = Path(".hydra") / "overrides.yaml"
RECORD = Path(".hydra") / "hydra.yaml"  # what Hydra composed the configuration from
CHECKPOINTS = ("last.ckpt", "previous.ckpt", "best.ckpt")  # in the order in which a resume tries them
# Settings that the weights and the optimizer state depend on, and the exceptions below them.
FIXED = ("model", "tokenizer", "optimizer", "init_from", "freeze", "adapter")
FREE = ("model.dropout", "model.gradient_checkpointing")
FREE_OF_ATTENTION = ("algorithm", "explore")  # at any site
CHOICE = re.compile(r"model\.(attention|sites\.\w+)(?:\.name)?")  # the choice of attention, for all sites or one
# Settings that do not change the numbers of training.
HARMLESS = (
    *("resume", "run_dir", "hydra", "threads", "logger", "test", "decoding", "metrics"),
    *("callbacks.checkpoint", "callbacks.early_stopping", "callbacks.validation_bleu", "callbacks.max_bad_steps"),
    *("trainer.max_steps", "trainer.max_time", "trainer.max_epochs", "trainer.log_every_n_steps"),
    *("trainer.val_check_interval", "trainer.detect_anomaly", "data.cache_dir", "data.num_workers"),
    *("data.num_proc", "data.target_language"),  # of paths, the contents are compared by fingerprint
)


def refuse_held(directory: Path, checkpoint: Path | None = None) -> None:
    """Raise ValueError where `directory` holds a run, unless `checkpoint` belongs to that run."""
    held = next(directory.glob("checkpoints/*.ckpt"), None)
    if held is not None and (checkpoint is None or not checkpoint.parent.samefile(held.parent)):
        raise ValueError(f"{directory} holds a run: continue it with resume={directory}, or set another hydra.run.dir")


def merge_overrides(overrides: Iterable[str]) -> list[str]:
    """Keep the last override of each key, so that the list does not grow with every resume."""
    merged: dict[str, str] = {}
    for override in overrides:
        key, *value = override.split("=", 1)
        merged.pop(key, None)
        merged[key] = "=".join([key, *value])
    return list(merged.values())


def record_overrides(directory: Path, overrides: Iterable[str], record: Mapping[str, Any] | None = None) -> None:
    """Write the overrides, and Hydra's record of the start, where `resumed_arguments` looks for them."""
    for path, content in ((OVERRIDES, merge_overrides(overrides)), (RECORD, record)):
        if content is not None:
            with atomic_writer(directory / path) as file:
                yaml.safe_dump(content, file, allow_unicode=True)


def last_checkpoint(run: str | Path) -> Path:
    """The checkpoint to resume a run from, if it can be read. ValueError if there is none."""
    return next(iter(candidates(run)), None) or find_checkpoint(run)


def candidates(run: str | Path) -> list[Path]:
    """The checkpoints that a run could be resumed from, in the order to try them."""
    paths = [Path(run) / "checkpoints" / name for name in CHECKPOINTS]
    return [path for path in paths if path.is_file()]


def open_checkpoint(run: str | Path) -> tuple[Path, dict[str, Any]]:
    """The checkpoint to resume a run from, and its package (`model_file.make_package`) with its `step`.

    A truncated or corrupt checkpoint is skipped with a warning, and the one before it is used. Raises ValueError where
    none can be read.
    """
    problem: ValueError | None = None
    for path in candidates(run) or [find_checkpoint(run)]:
        try:
            content = read_checkpoint(path)
        except ValueError as error:
            problem = problem or error
            continue
        package, step = content["scaleformer"], content.get("global_step", 0)
        if problem is not None:
            warnings.warn(f"{problem}: continuing from {path.name} instead, step {step}", stacklevel=2)
        return path, {**package, "step": step}
    assert problem is not None
    raise problem


def check_settings(package: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raises ValueError where `config` changes a setting that the weights of the run depend on. Warns of other changes
    that affect results, and of a `trainer.max_steps` that the run has passed."""
    differing = []
    usual: dict[str, Any] = {"adapter": {"rank": 0}}  # runs may be older than this group
    before = {**usual, **package["config"], "data": from_here(package["config"].get("data") or {}, package["config"])}
    config = {**usual, **config}
    for group in FIXED:
        saved = _flat(before[group], group)
        for name in [key for key, value in saved.items() if value == "segment_recall"]:  # runs from before the options
            for option, usual_value in (("document_layers", None), ("shut", False)):
                saved.setdefault(f"{name.removesuffix('.name')}.{option}", usual_value)
        for name, value in _flat(config[group], group).items():
            # A group of settings on one side may be a single value on the other: then the depths of names differ.
            others = [key for key in saved if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}.")]
            differing += [(name, value, key, saved[key]) for key in others if not is_free(name) and saved[key] != value]
    if differing:  # report another attention first: its options differ with it
        name, value, key, old = min(differing, key=lambda found: CHOICE.fullmatch(found[2]) is None)
        raise ValueError(
            f"resume: {name}={value}, but the run has {key}={old}, and its weights depend on it: set "
            f"{_given_as(key, old)} (a default may have changed since), or start a new run"
        )
    changed: list[str] = []
    moved: list[str] = []
    for group, now in config.items():
        saved = _flat(before.get(group, {}), group)
        for name, value in _flat(now, group).items():
            harmless = any(name == free or name.startswith(f"{free}.") for free in HARMLESS)
            if not harmless and saved.get(name) != value:
                found = moved if PATHS.fullmatch(name) else changed
                found.append(f"{name}={value} (was {saved.get(name, 'not set')})")
    if changed:
        warnings.warn(f"resume: {', '.join(changed)}: results will differ from the run so far", stacklevel=2)
    if moved:
        what = f"resume: {', '.join(moved)}: the run reads its documents there from now on"
        warnings.warn(what, stacklevel=2)
    step, last = package["step"], config["trainer"]["max_steps"]
    if 0 < last < step:
        what = f"the run is at step {step}, past trainer.max_steps={last}"
        warnings.warn(f"resume: {what}: there is nothing left to train", stacklevel=2)


def _given_as(key: str, value: Any) -> str:
    """The override that restores a setting; an attention is a group, chosen with all its options."""
    if (choice := CHOICE.fullmatch(key)) is None:
        return f"{key}={json.dumps(value)}"
    place = "" if choice[1] == "attention" else f"@model.{choice[1]}"
    return f"model/attention{place}={'null' if value is None else value}"


def is_free(name: str) -> bool:
    """Whether the weights do not depend on a setting of the model."""
    return name in FREE or (name.startswith("model.") and name.rpartition(".")[2] in FREE_OF_ATTENTION)


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {name: item for key, inner in value.items() for name, item in _flat(inner, f"{prefix}.{key}").items()}
