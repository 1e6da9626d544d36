"""Small models and batches that several tests need."""

from __future__ import annotations

import random
from typing import Any

import torch

from scaleformer.batch import Batch
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer

PAD, BOS, EOS, SEP = 0, 2, 3, 4


def make_model(vocabulary: int = 20, **changes: Any) -> Transformer:
    """A seeded two-layer model in float64, without dropout."""
    torch.manual_seed(1)
    settings = {"encoder_layers": 2, "decoder_layers": 2, "width": 32, "feedforward": 48, "heads": 4, "dropout": 0.0}
    return Transformer(ModelConfig(vocabulary, vocabulary, **{**settings, **changes})).double().eval()


def make_batch(documents: list[tuple[list[int], list[int]]], seeds: list[int] | None = None) -> Batch:
    """Random tokens (5 to 19) for documents given by the lengths of their source and target segments."""
    sources, targets = [], []
    for row, (source, target) in enumerate(documents):
        generator = random.Random(seeds[row] if seeds else row)
        sources.append([t for n in source for t in [*(generator.randrange(5, 20) for _ in range(n)), SEP]] + [EOS])
        targets.append([t for n in target for t in [*(generator.randrange(5, 20) for _ in range(n)), SEP]])

    def pad(rows: list[list[int]]) -> torch.Tensor:
        longest = max(map(len, rows))
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])

    source, target_input = pad(sources), pad([[BOS, *t] for t in targets])
    return Batch(
        source=source,
        source_mask=source != PAD,
        source_segments=(source == SEP).cumsum(1) - (source == SEP).long(),
        target_input=target_input,
        target_output=pad([[*t, EOS] for t in targets]),
        target_mask=target_input != PAD,
        target_segments=(target_input == SEP).cumsum(1),
        ids=tuple(str(row) for row in range(len(documents))),
    )
