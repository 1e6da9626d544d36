"""A translator that writes its source again, for tests of what happens around a model."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.decoding.config import DecodingConfig
from scaleformer.translation.translator import Translator
from tests.runs import tokenizer

GREEDY = DecodingConfig(strategy="greedy")


class CopyModel(nn.Module):
    """Writes the source again, token by token; keeps the shapes of the batches that it was given."""

    most_target_tokens = math.inf

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((), 9.0))
        self.vocabulary = vocabulary
        self.batches: list[tuple[int, ...]] = []

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> Tensor:
        self.batches.append(tuple(source_mask.sum(1).tolist()))
        return source

    def init_state(self, encoded: Tensor, beams: int) -> tuple[Tensor, int]:
        return encoded.repeat_interleave(beams, 0), 0

    def step(self, tokens: Tensor, segments: Tensor, state: tuple[Tensor, int]):
        source, position = state
        following = source[:, min(position, source.shape[1] - 1)]
        return nn.functional.one_hot(following, self.vocabulary) * self.scale, (source, position + 1)

    def reorder(self, state: tuple[Tensor, int], rows: Tensor, documents: Tensor | None) -> tuple[Tensor, int]:
        return state[0][rows], state[1]


def make_copier() -> Translator:
    """Greedy, with the tokenizer of the tests."""
    model = CopyModel(tokenizer().vocab_size)
    return Translator(LoadedModel(model, tokenizer(), tokenizer(), {}, "0" * 64, Path("copier")), GREEDY)  # type: ignore[arg-type]
