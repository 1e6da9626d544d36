"""Several models that translate as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from scaleformer.system.schema import check_type

Average = Literal["probabilities", "logs"]


class Ensemble(nn.Module):
    """Models with the same vocabulary as one `scaleformer.decoding.search.DecodableModel`: averages their
    probabilities, or with "logs" their log-probabilities (the renormalized geometric mean)."""

    def __init__(self, models: Sequence[nn.Module], average: Average = "probabilities") -> None:
        super().__init__()
        check_type("ensemble", average, Average)
        self.models: Any = nn.ModuleList(models)
        self.average = average

    def remembering(self, caches: Sequence[Sequence[Any] | None]) -> Ensemble:
        """The same models, to decode documents of which each has a cache for each of them, or none."""
        own = ([some[n] if some else None for some in caches] for n in range(len(self.models)))
        return Ensemble([model.remembering(some) for model, some in zip(self.models, own, strict=True)], self.average)

    @property
    def most_target_tokens(self) -> float:
        return min(model.most_target_tokens for model in self.models)

    @property
    def ends_with_segments(self) -> bool:
        return all(getattr(model, "ends_with_segments", False) for model in self.models)

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> list[Any]:
        return [model.encode(source, source_mask, source_segments) for model in self.models]

    def init_state(self, encoded: list[Any], beams: int) -> list[Any]:
        return [model.init_state(part, beams) for model, part in zip(self.models, encoded, strict=True)]

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
