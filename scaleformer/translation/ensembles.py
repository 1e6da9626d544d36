"""The loading of several models as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.decoding.ensemble import Average, Ensemble
from scaleformer.model.transformer import Transformer


def load_ensemble(
    paths: Sequence[str | Path],
    device: torch.device,
    average: Average = "probabilities",
    dtype: torch.dtype = torch.float32,
) -> LoadedModel:
    """Several models as one, with the settings and tokenizers of the first and a hash over all of them. Raises
    ValueError in one line if vocabularies differ or the average is unknown, and as `load_model`."""
    if not paths:
        raise ValueError("checkpoint=[]: wanted at least one model")
    first, *others = loaded = [load_model(path, device, dtype) for path in paths]
    for other in others:
        for side in ("source", "target"):
            if getattr(other, f"{side}_tokenizer").hash != getattr(first, f"{side}_tokenizer").hash:
                raise ValueError(
                    f"{other.path}: its {side} vocabulary differs from that of {first.path}: models of an "
                    "ensemble need the same one"
                )
    model = cast(Transformer, Ensemble([one.model for one in loaded], average))
    longest = [one.longest_segment for one in loaded if one.longest_segment is not None]
    sha256 = hashlib.sha256(" ".join([average, *(one.sha256 for one in loaded)]).encode()).hexdigest()
    return replace(first, model=model, sha256=sha256, longest_segment=min(longest, default=None), parent=None)
