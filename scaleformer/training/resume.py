"""Going on with a run: the command line that it was started with, and its last checkpoint."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from scaleformer.checkpoints.model_file import FORMAT, find_checkpoint, read_checkpoint
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.evaluation.metrics import metrics_of
from scaleformer.system.files import atomic_writer

OVERRIDES = Path(".hydra") / "overrides.yaml"
# Settings of older runs, by what they are called now.
RENAMED = {"test.metrics": "metrics", "callbacks.validation_bleu.tokenize": "metrics.tokenize"}
RECORD = Path(".hydra") / "hydra.yaml"  # of what the configuration was composed
CHECKPOINTS = ("last.ckpt", "previous.ckpt", "best.ckpt")  # in the order in which a run goes on from them
# What the weights and the state of the optimizer are made for, but for settings that leave their meaning alone.
FIXED = ("model", "tokenizer", "optimizer", "init_from", "freeze")
FREE = ("model.dropout", "model.gradient_checkpointing", "tokenizer.sample_alpha")
FREE_OF_ATTENTION = ("algorithm", "explore")  # at whatever site
CHOICE = re.compile(r"model\.(attention|sites\.\w+)(?:\.name)?")  # which attention, of all sites or of one
# Settings that do not touch the numbers of training.
HARMLESS = (
    *("resume", "run_dir", "hydra", "threads", "logger", "test", "decoding", "metrics"),
    *("callbacks.checkpoint", "callbacks.early_stopping", "callbacks.validation_bleu", "callbacks.max_bad_steps"),
    *("trainer.max_steps", "trainer.max_time", "trainer.max_epochs", "trainer.log_every_n_steps"),
    *("trainer.val_check_interval", "trainer.detect_anomaly", "data.cache_dir", "data.num_workers"),
    *("data.num_proc", "data.target_language"),
    "data.path",  # what stands there is known by its fingerprint
)

# Settings that older runs do not name, with the value that they were trained with.
ADDED: dict[str, Any] = {"r_drop": 0, "init_from": None, "freeze": []}
ADDED_TO_GROUPS: dict[str, Any] = {"scaled": True, "extend": None}  # at whatever place
ADDED_TO_GROUPS |= dict.fromkeys(("merge_segments", "mask_spans", "annotate_terms", "word_dropout", "mask_source"), 0.0)
ADDED_TO_GROUPS |= {"corpora": None, "temperature": 1.0, "tag": None}


def refuse_held(directory: Path, checkpoint: Path | None = None) -> None:
    """Raise ValueError where `directory` holds a run, unless `checkpoint` is one of it."""
    held = next(directory.glob("checkpoints/*.ckpt"), None)
    if held is not None and (checkpoint is None or not checkpoint.parent.samefile(held.parent)):
        raise ValueError(f"{directory} holds a run: go on with it by resume={directory}, or take another hydra.run.dir")


def merge_overrides(overrides: Iterable[str]) -> list[str]:
    """One override a key, the last one, so that a list that is added to at every resume does not grow."""
    merged: dict[str, str] = {}
    for override in overrides:
        key, *value = override.split("=", 1)
        key = RENAMED.get(key, key)
        merged.pop(key, None)
        merged[key] = "=".join([key, *value])
    return list(merged.values())


def record_overrides(directory: Path, overrides: Iterable[str], record: Mapping[str, Any] | None = None) -> None:
    """Leave the overrides, and what Hydra tells of the start, where `resumed_arguments` looks for them."""
    for path, content in ((OVERRIDES, merge_overrides(overrides)), (RECORD, record)):
        if content is not None:
            with atomic_writer(directory / path) as file:
                yaml.safe_dump(content, file, allow_unicode=True)


def renewed(config: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A configuration from before there was the group `metrics`, as it would be recorded now; others as they are.

    That version matched no segments unless told to: what it recorded was nobody's choice, unless `overrides` make it.
    """
    if "metrics" in config or not all(isinstance(config.get(group), Mapping) for group in ("test", "callbacks")):
        return dict(config)
    renewed = deepcopy(dict(config))
    metrics, bleu = metrics_of(config), renewed["callbacks"].get("validation_bleu") or {}
    if (tokenize := bleu.pop("tokenize", "13a")) != "13a" and metrics["tokenize"] == "auto":
        metrics["tokenize"] = tokenize
    renewed["test"].pop("metrics", None)
    chosen = {override.split("=")[0].lstrip("+") for override in overrides}
    for name, group in (("decoding", renewed), ("callbacks.validation_bleu.decoding", bleu)):
        if isinstance(group.get("decoding"), dict) and f"{name}.match_segments" not in chosen:
            group["decoding"]["match_segments"] = True
    return {**renewed, "metrics": metrics}


def last_checkpoint(run: str | Path) -> Path:
    """The checkpoint with which a run goes on if it can be read. ValueError if there is none."""
    return next(iter(candidates(run)), None) or find_checkpoint(run)


def candidates(run: str | Path) -> list[Path]:
    """The checkpoints that a run could go on from, that to be tried first at first."""
    paths = [Path(run) / "checkpoints" / name for name in CHECKPOINTS]
    return [path for path in paths if path.is_file()]


def open_checkpoint(run: str | Path) -> tuple[Path, dict[str, Any]]:
    """The checkpoint with which a run goes on, and what it says of the run (`model_file.make_package`), its
    `step` too.

    One that is cut short or has wrong bits is passed over with a warning for the one before it. Raises ValueError where
    none can be read, and where it has another format.
    """
    problem: ValueError | None = None
    for path in candidates(run) or [find_checkpoint(run)]:
        try:
            content = read_checkpoint(path)
        except ValueError as error:
            problem = problem or error
            continue
        package, step = content["scaleformer"], content.get("global_step", 0)
        if package.get("format") != FORMAT:
            raise ValueError(
                f"{path}: the checkpoint has format {package.get('format')}, this version goes on with format "
                f"{FORMAT}: use the version of scaleformer that wrote it"
            )
        if problem is not None:
            warnings.warn(f"{problem}: going on from {path.name} instead, step {step}", stacklevel=2)
        return path, {**package, "step": step}
    assert problem is not None
    raise problem


def check_settings(package: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raises ValueError where `config` differs from the run in a setting that its weights are made for. Warnings name
    other settings after whose change the run is not what it would have been, and an end that lies behind it."""
    differing = []
    before, config = {**ADDED, **package["config"]}, {**ADDED, **config}
    for group in FIXED:
        saved = _flat(before.get(group, {}), group)
        for name, value in _flat(config[group], group).items():
            # Where one has a group of settings and the other none, the names are those of different depths.
            others = [key for key in saved if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}.")]
            differing += [
                (name, value, key, saved[key]) for key in others if not _is_free(name) and saved[key] != value
            ]
    if differing:  # another attention first: its options follow it
        name, value, key, old = min(differing, key=lambda found: CHOICE.fullmatch(found[2]) is None)
        raise ValueError(
            f"resume: {name}={value}, but the run has {key}={old}, which its weights are made for: give "
            f"{_given_as(key, old)} (a default may have changed since), or start a new run"
        )
    changed = []
    for group, now in config.items():
        saved = _flat(before.get(group, {}), group)
        for name, value in _flat(now, group).items():
            harmless = any(name == free or name.startswith(f"{free}.") for free in HARMLESS)
            last = name.rpartition(".")[2]
            harmless |= re.fullmatch(r"data\.corpora\.[^.]+\.path", name) is not None
            added = name not in saved and last in ADDED_TO_GROUPS and value == ADDED_TO_GROUPS[last]
            if not harmless and not added and group in before and saved.get(name) != value:
                changed.append(f"{name}={value} (was {saved.get(name, 'not set')})")
    if changed:
        warnings.warn(f"resume: {', '.join(changed)}: from here on it is another run than before", stacklevel=2)
    step, last = package["step"], config["trainer"]["max_steps"]
    if 0 < last < step:
        what = f"the run is at step {step}, past trainer.max_steps={last}"
        warnings.warn(f"resume: {what}: no step follows", stacklevel=2)


def _given_as(key: str, value: Any) -> str:
    """The override that makes a setting what it was; an attention is a group, chosen with all its options."""
    if (choice := CHOICE.fullmatch(key)) is None:
        return f"{key}={json.dumps(value)}"
    place = "" if choice[1] == "attention" else f"@model.{choice[1]}"
    return f"model/attention{place}={'null' if value is None else value}"


def _is_free(name: str) -> bool:
    return name in FREE or (name.startswith("model.") and name.rpartition(".")[2] in FREE_OF_ATTENTION)


def read_tokenizers(package: Mapping[str, Any]) -> tuple[Tokenizer, Tokenizer]:
    """(source, target) of a run, one and the same where they are alike, so that nothing is encoded twice."""
    source, target = (package[f"{side}_tokenizer"].numpy().tobytes() for side in ("source", "target"))
    first = Tokenizer.from_proto(source)
    return first, first if source == target else Tokenizer.from_proto(target)


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {name: item for key, inner in value.items() for name, item in _flat(inner, f"{prefix}.{key}").items()}
