"""What a model file holds: configurations, tokenizers and weights, read without running foreign code."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.model.config import ModelConfig

FORMAT = 1
SIDES = ("source", "target")
#: What a model file holds beside its format and weights.
PACKAGE: dict[str, Any] = {
    "model": dict,
    "config": dict,
    "longest_segment": int | None,
    "segmentation": dict,
    "parent": dict | None,
    "source_tokenizer": Tensor,
    "target_tokenizer": Tensor,
}
EXPORTED = ("model.safetensors", "config.yaml", "source.model", "target.model")


def make_package(
    model: ModelConfig,
    config: Mapping[str, Any],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    parent: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Configurations and tokenizers of a run, and the model that it started from, as plain values and tensors only:
    `weights_only` loading accepts nothing else."""
    return {
        "format": FORMAT,
        "model": plain(asdict(model)),
        "config": plain(config),
        "longest_segment": None,  # the trainer fills it in once it has seen the data
        "segmentation": {},
        "parent": plain(parent),
        "source_tokenizer": bytes_to_tensor(source_tokenizer.proto),
        "target_tokenizer": bytes_to_tensor(target_tokenizer.proto),
    }


def read_tokenizers(package: Mapping[str, Any]) -> tuple[Tokenizer, Tokenizer]:
    """(source, target); one object where they are equal, so that nothing is encoded twice. Raises ValueError."""
    made: dict[bytes, Tokenizer] = {}
    protos = {side: package[f"{side}_tokenizer"].numpy().tobytes() for side in SIDES}
    for side, proto in protos.items():
        try:
            made[proto] = made.get(proto) or Tokenizer(proto)
        except ValueError as error:
            raise ValueError(f"the {side} tokenizer: {error}") from error
    return made[protos["source"]], made[protos["target"]]


def read_checkpoint(path: Path, mmap: bool = False) -> dict[str, Any]:
    """The content of a scaleformer checkpoint, with verified checksums and read without running code (`weights_only`).
    mmap: map the file in place of reading it, for callers that copy a part, such as the weights without the optimizer.
    Raises ValueError in one line if it is not one, is truncated, or has a flipped bit."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (wrong := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {wrong} is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:  # torch's message tells how to load it anyway, which runs its code
        raise ValueError(
            f"{path}: not a readable checkpoint: it holds more than tensors and plain values, and scaleformer runs no "
            "code from checkpoints"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # hostile bytes make zipfile and torch's reader raise nearly anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{path}: not a readable checkpoint (truncated, or not written by scaleformer): {reason}"
        ) from error
    if not isinstance(content, dict) or "scaleformer" not in content or "state_dict" not in content:
        raise ValueError(f"{path}: not a scaleformer checkpoint: it holds no configuration and tokenizers")
    weights = content["state_dict"]
    named = isinstance(weights, dict) and all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in weights.items()
    )
    if not named or not isinstance(content["scaleformer"], dict):
        raise ValueError(f"{path}: not a scaleformer checkpoint: its weights are not named tensors")
    _check_package(content["scaleformer"], path)
    return content


def _check_package(package: Mapping[str, Any], path: Path) -> None:
    """Raise ValueError unless it is as `make_package` makes it."""
    if package.get("format") != FORMAT:
        raise ValueError(
            f"{path}: the checkpoint has format {package.get('format')}, but this version reads format {FORMAT}: "
            "use the version of scaleformer that wrote it"
        )
    if missing := [n for n, kinds in PACKAGE.items() if n not in package or not isinstance(package[n], kinds)]:
        raise ValueError(f"{path}: the checkpoint has no {' and no '.join(missing)}: use one that a training saved")


def read_export(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        description = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
        weights = load_file(path / "model.safetensors")
        protos = {side: (path / f"{side}.model").read_bytes() for side in SIDES}
        weights.update({name: weights[first] for name, first in description["tied"].items()})
    except (OSError, ValueError, AttributeError, KeyError, TypeError, yaml.YAMLError, SafetensorError) as error:
        raise ValueError(f"{path}: not a complete exported model: {' '.join(str(error).split())}") from error
    tokenizers = {f"{side}_tokenizer": bytes_to_tensor(proto) for side, proto in protos.items()}
    package = {**description, **tokenizers}
    _check_package(package, path)
    return package, weights


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def bytes_to_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
