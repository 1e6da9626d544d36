"""Averages the weights of several checkpoints of one model [Vaswani 2017, section 6.1]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleformer.checkpoints.model_file import find_checkpoint
from scaleformer.checkpoints.package import read_checkpoint


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, Any]:
    """The content of a checkpoint with the mean weights of the given ones. It can translate, but not resume a training.

    paths  at least two checkpoint files or run directories with the same model configuration and tokenizers.
           Sums are taken in float64; tensors that are not floating-point come from the first checkpoint.
    Raises ValueError for fewer than two paths, an unreadable checkpoint, or models or tokenizers that differ.
    """
    files = [find_checkpoint(path) for path in paths]
    if len({file.resolve() for file in files}) < max(2, len(files)):
        raise ValueError(f"checkpoints={', '.join(map(str, paths))}: wanted two or more different ones")
    total: dict[str, Tensor] = {}
    first: dict[str, Any] = {}
    for file in files:
        content = read_checkpoint(file)
        package = content["scaleformer"]
        weights = {name: value for name, value in content["state_dict"].items() if name.startswith("model.")}
        if any(".parametrizations." in name for name in weights):
            raise ValueError(f"{file}: adapters cannot be averaged: export the models, and average these")
        if not first:
            first = {"package": package, "weights": weights, "file": file}
        _check_same_model(first, package, weights, file)
        for name, value in weights.items():
            if value.is_floating_point():
                total[name] = total[name] + value.double() if name in total else value.double()
    mean = {
        name: (total[name] / len(files)).to(value.dtype) if name in total else value
        for name, value in first["weights"].items()
    }
    return {"scaleformer": first["package"], "state_dict": mean, "averaged": [str(file) for file in files]}


def _check_same_model(first: dict[str, Any], package: dict[str, Any], weights: dict[str, Tensor], file: Path) -> None:
    """Raise ValueError unless both checkpoints belong to one model."""
    differing = []
    if package["model"] != first["package"]["model"]:
        differing.append("model configuration")
    for side in ("source", "target"):
        name = f"{side}_tokenizer"
        if not torch.equal(package[name], first["package"][name]):
            differing.append(f"{side} tokenizer")
    shapes = [{name: value.shape for name, value in found.items()} for found in (weights, first["weights"])]
    if shapes[0] != shapes[1]:
        differing.append("weight shapes")
    if differing:
        raise ValueError(
            f"{file}: not the same {' and '.join(differing)} as in {first['file']}: average checkpoints of one run"
        )
