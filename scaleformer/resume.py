"""Going on with a run: the command line that it was started with, and its last checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .checkpoint import FORMAT, find_checkpoint, read_checkpoint
from .data.tokenizer import Tokenizer

OVERRIDES = Path(".hydra") / "overrides.yaml"
# What the weights and the state of the optimizer are made for, but for settings that leave their meaning alone.
FIXED = ("model", "tokenizer", "optimizer")
FREE = ("model.dropout", "model.gradient_checkpointing", "tokenizer.sample_alpha")


def resumed_arguments(arguments: list[str]) -> list[str]:
    """The command line of `resume=RUN`: the overrides that RUN was started with, then those given now.

    The run goes on in RUN unless the command line names another hydra.run.dir. Hydra is told not to write its record of
    overrides (`record_overrides` does, once they are known to be right). Arguments without resume= come back as they
    are. Raises ValueError where RUN is no run directory.
    """
    chosen = [unquoted(argument.split("=", 1)[1]) for argument in arguments if argument.startswith("resume=")]
    if not chosen or chosen[-1] in ("", "null"):
        return arguments
    run = Path(chosen[-1])
    saved = run / OVERRIDES
    try:
        before = yaml.safe_load(saved.read_text(encoding="utf-8")) or []
        last_checkpoint(run)
    except (OSError, yaml.YAMLError, ValueError) as error:
        what = f"{saved} is missing" if not saved.is_file() else " ".join(str(error).split())
        raise ValueError(f"resume={run}: no run to go on with ({what})") from error
    place = [] if any(a.startswith("hydra.run.dir=") for a in arguments) else [f"hydra.run.dir={quoted(str(run))}"]
    return [*merge_overrides([*before, *arguments]), *place, "hydra.output_subdir=null"]


def quoted(value: str) -> str:
    """A value as the grammar of Hydra's command line wants it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def unquoted(value: str) -> str:
    """The inverse of `quoted`, for either kind of quotes; other values as they are."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return value
    return value[1:-1].replace("\\" + value[0], value[0]).replace("\\\\", "\\")


def merge_overrides(overrides: Iterable[str]) -> list[str]:
    """One override a key, the last one, so that a list that is added to at every resume does not grow."""
    merged: dict[str, str] = {}
    for override in overrides:
        key = override.split("=", 1)[0]
        merged.pop(key, None)
        merged[key] = override
    return list(merged.values())


def record_overrides(directory: Path, overrides: Iterable[str]) -> None:
    """Leave the overrides where `resumed_arguments` looks for them."""
    target = directory / OVERRIDES
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".part")
    temporary.write_text(yaml.safe_dump(merge_overrides(overrides), allow_unicode=True), encoding="utf-8")
    temporary.replace(target)


def last_checkpoint(run: str | Path) -> Path:
    """The checkpoint with which a run goes on: last.ckpt, else the one that there is. ValueError if there is none."""
    last = Path(run) / "checkpoints" / "last.ckpt"
    return last if last.is_file() else find_checkpoint(run)


def read_package(checkpoint: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of its run (`scaleformer.checkpoint.make_package`).

    Raises ValueError where it cannot be read or has another format, and where `config` differs in a setting that its
    weights are made for.
    """
    package = read_checkpoint(checkpoint)["scaleformer"]
    if package.get("format") != FORMAT:
        raise ValueError(
            f"{checkpoint}: the checkpoint has format {package.get('format')}, this version goes on with format "
            f"{FORMAT}: use the version of scaleformer that wrote it"
        )
    for group in FIXED:
        saved = _flat(package["config"][group], group)
        for name, value in _flat(config[group], group).items():
            if name not in FREE and name in saved and saved[name] != value:
                raise ValueError(
                    f"resume: {name}={value}, but the run has {name}={saved[name]}, which its weights are made for: "
                    "leave it, or start a new run"
                )
    return package


def read_tokenizers(package: Mapping[str, Any]) -> tuple[Tokenizer, Tokenizer]:
    """(source, target) of a run, one and the same where they are alike, so that nothing is encoded twice."""
    source, target = (package[f"{side}_tokenizer"].numpy().tobytes() for side in ("source", "target"))
    first = Tokenizer.from_proto(source)
    return first, first if source == target else Tokenizer.from_proto(target)


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {name: item for key, inner in value.items() for name, item in _flat(inner, f"{prefix}.{key}").items()}
