"""Log-probabilities of given continuations, in parallel over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scaleformer.data.batching import Example, collate
from scaleformer.decoding.ensemble import Ensemble
from scaleformer.model.transformer import Transformer
from scaleformer.vocabulary import EOS, PAD

ROWS = 16  # per pass, since their logits cover the whole vocabulary


class Scores(NamedTuple):
    """Log-probabilities (natural logarithm, fp32) of each token of each row, and of the requested token at each of its
    positions and after the last one."""

    tokens: list[list[Tensor]]
    asked: list[list[Tensor]]


@torch.inference_mode()
def score_rows(
    model: Transformer | Ensemble,
    sources: Sequence[Sequence[int]],
    rows: Sequence[Sequence[Sequence[int]]],
    counted: bool,
    asked: Sequence[int] | None = None,
) -> Scores:
    """Score rows of target tokens for each source (with its `</s>`). Rows start at the beginning of the target, without
    `<s>` and `</s>`. asked: the requested token of each source, see `Scores`. The model must be in evaluation mode."""
    device = next(model.parameters()).device
    flat = [(n, row) for n, some in enumerate(rows) for row in some]
    found = Scores([[] for _ in rows], [[] for _ in rows])
    for start in range(0, len(flat), ROWS):
        part = flat[start : start + ROWS]
        examples = [Example("", np.array(sources[n]), np.array([*row, EOS]), counted) for n, row in part]
        batch = collate(examples).to(device)
        models = model.models if isinstance(model, Ensemble) else [model]
        logs = torch.stack([one.logits(one(batch)).float().log_softmax(-1) for one in models])  # (models, B, L, V)
        mean = model.mean(logs).log_softmax(-1) if isinstance(model, Ensemble) else logs[0]  # (B, L, V)
        for (n, row), own in zip(part, mean.cpu(), strict=True):
            found.tokens[n].append(own[torch.arange(len(row)), torch.tensor(row, dtype=torch.long)])
            found.asked[n].append(own[: len(row) + 1, asked[n] if asked else PAD])
    return found
