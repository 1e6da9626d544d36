"""Several models that translate as one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.model.transformer import Transformer

AVERAGES = ("probabilities", "logs")


class Ensemble(nn.Module):
    """Models with the same vocabulary as one `scaleformer.decoding.search.DecodableModel`: averages their
    probabilities, or with "logs" their log-probabilities (the renormalized geometric mean)."""

    def __init__(self, models: Sequence[nn.Module], average: str = "probabilities") -> None:
        super().__init__()
        if average not in AVERAGES:
            raise ValueError(f"ensemble={average}: choose one of {', '.join(AVERAGES)}")
        self.models: Any = nn.ModuleList(models)
        self.average = average

    @property
    def most_target_tokens(self) -> float:
        return min(model.most_target_tokens for model in self.models)

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> list[Any]:
        return [model.encode(source, source_mask, source_segments) for model in self.models]

    def init_state(self, memory: list[Any], beams: int) -> list[Any]:
        return [model.init_state(part, beams) for model, part in zip(self.models, memory, strict=True)]

    def step(self, tokens: Tensor, segments: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        """Logits (B*K, V) fp32 of the next token: the log of the averaged probabilities."""
        steps = [model.step(tokens, segments, part) for model, part in zip(self.models, state, strict=True)]
        logs = torch.stack([logits.float().log_softmax(1) for logits, _ in steps])  # (models, B*K, V)
        return self.mean(logs), [part for _, part in steps]

    def mean(self, logs: Tensor) -> Tensor:
        """Logits (..., V) of the average, from the log-probabilities (models, ..., V) of each."""
        if self.average == "logs":
            return logs.mean(0)  # up to a constant per row
        return logs.logsumexp(0) - math.log(len(logs))

    def reorder(self, state: list[Any], rows: Tensor, documents: Tensor | None = None) -> list[Any]:
        return [model.reorder(part, rows, documents) for model, part in zip(self.models, state, strict=True)]


def load_ensemble(paths: Sequence[str | Path], device: torch.device, average: str = "probabilities") -> LoadedModel:
    """Several models as one, with the settings and tokenizers of the first and a hash over all of them.

    Raises ValueError in one line if vocabularies differ or the average is unknown, and as `load_model`.
    """
    if not paths:
        raise ValueError("checkpoint=[]: wanted at least one model")
    first, *others = loaded = [load_model(path, device) for path in paths]
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
