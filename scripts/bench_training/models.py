"""Shared parts of the benchmarks of whole models: sizes, models, documents, our loss."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleformer.batch import Batch
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.ops.loss.cross_entropy import linear_cross_entropy
from scaleformer.vocabulary import BOS, EOS, SEP

#: of attentions, where conf/model/attention differs from what a checkpoint without them means
OPTIONS = {"segment_recall": {"document_layers": 1}}


@dataclass
class Sizes:
    """The sizes that all systems of a comparison share; by default those of the preset `small`."""

    layers: int = 6  # of the encoder, and as many of the decoder
    width: int = 256
    feedforward: int = 1024
    heads: int = 4
    vocabulary: int = 8000

    def __str__(self) -> str:
        return (
            f"{self.layers}+{self.layers} layers, width {self.width}/{self.feedforward}, {self.heads} heads, "
            f"vocabulary {self.vocabulary}"
        )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """An option for each size."""
    words = {
        "layers": "of the encoder, and of the decoder",
        "width": "of the model",
        "feedforward": "inner width of the feed-forward layers",
        "heads": "of each attention",
        "vocabulary": "pieces",
    }
    for size in fields(Sizes):
        parser.add_argument(f"--{size.name}", type=int, default=size.default, help=words[size.name])


def with_sizes(found: Mapping[str, Any]) -> dict[str, Any]:
    """Parsed options, with the sizes as a group of their own."""
    names = [size.name for size in fields(Sizes)]
    rest = {name: value for name, value in found.items() if name not in names}
    return {**rest, "sizes": {name: found[name] for name in names}}


def make_model(attention: str, sizes: Sizes, dropout: float = 0.1) -> Transformer:
    """A model of this package with random weights and the named attention."""
    config = ModelConfig(
        sizes.vocabulary,
        sizes.vocabulary,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
        width=sizes.width,
        feedforward=sizes.feedforward,
        heads=sizes.heads,
        dropout=dropout,
        attention={"name": attention, **OPTIONS.get(attention, {})},
    )
    return Transformer(config)


def make_batch(documents: int, tokens: int, segment: int, vocabulary: int, generator: torch.Generator) -> Batch:
    """Random documents, source and target of `tokens` tokens in segments of `segment` with their `<sep>`, no pads."""

    def side() -> Tensor:
        text = torch.randint(SEP + 1, vocabulary, (documents, tokens), generator=generator)  # (B, L)
        text[:, segment - 1 :: segment] = SEP
        text[:, -2:] = torch.tensor([SEP, EOS])[-min(tokens, 2) :]
        return text

    source, target = side(), side()
    target_input = torch.cat([torch.full((documents, 1), BOS), target[:, :-1]], dim=1)  # (B, L)
    separators = (source == SEP).long()
    mask = torch.ones(documents, tokens, dtype=torch.bool)
    return Batch(
        source, mask, separators.cumsum(1) - separators, target_input, target, mask, (target_input == SEP).cumsum(1)
    )


def available_memory() -> float:
    """Bytes free for a new process on the machine; infinite where the system does not report it."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return float("inf")


def our_loss(model: Transformer, batch: Batch) -> Tensor:
    """Mean cross-entropy as in `TranslationModule`."""
    states = model(batch)[batch.target_mask]  # (tokens, D)
    return linear_cross_entropy(states, model.output_weight, batch.target_output[batch.target_mask])
