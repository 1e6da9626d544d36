"""The mean of the weights of several checkpoints of one model [Vaswani 2017, section 6.1]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleformer.checkpoints.model_file import find_checkpoint, read_checkpoint


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, Any]:
    """The content of a checkpoint whose weights are the mean of the given ones: to translate with, not to resume.

    paths  checkpoint files or run directories, at least two, of the same configuration of the model and tokenizers.
           Sums are taken in float64; what is no floating-point number is that of the first.
    Raises ValueError: fewer than two, no checkpoint, one of another model or with other tokenizers.
    """
    files = [find_checkpoint(path) for path in paths]
    if len(files) < 2:
        raise ValueError(f"{len(files)} checkpoints to average: wanted at least 2")
    total: dict[str, Tensor] = {}
    first: dict[str, Any] = {}
    for file in files:
        content = read_checkpoint(file)
        package = content["scaleformer"]
        weights = {name: value for name, value in content["state_dict"].items() if name.startswith("model.")}
        if not first:
            first = {"package": package, "weights": weights, "file": file}
        _check_alike(first, package, weights, file)
        for name, value in weights.items():
            if value.is_floating_point():
                total[name] = total[name] + value.double() if name in total else value.double()
    mean = {
        name: (total[name] / len(files)).to(value.dtype) if name in total else value
        for name, value in first["weights"].items()
    }
    return {"scaleformer": first["package"], "state_dict": mean, "averaged": [str(file) for file in files]}


def _check_alike(first: dict[str, Any], package: dict[str, Any], weights: dict[str, Tensor], file: Path) -> None:
    """ValueError where two checkpoints are not of one model."""
    reasons = []
    if package["model"] != first["package"]["model"]:
        reasons.append("another model")
    for side in ("source", "target"):
        name = f"{side}_tokenizer"
        if not torch.equal(package[name], first["package"][name]):
            reasons.append(f"another {side} tokenizer")
    shapes = [{name: value.shape for name, value in found.items()} for found in (weights, first["weights"])]
    if shapes[0] != shapes[1]:
        reasons.append("weights of other shapes")
    if reasons:
        raise ValueError(f"{file}: {' and '.join(reasons)} than in {first['file']}: average checkpoints of one run")
