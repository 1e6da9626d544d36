"""Sampling of tokens, by random numbers that do not depend on the rest of the batch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig


class Draws:
    """Uniform draws for sampling, which depend on the seed, the key of the document and the number of the row in it."""

    block = 256  # steps drawn at once: a separate draw for each row and step would take longer than the step

    def __init__(self, seed: int, keys: Sequence[str], rows: int, device: torch.device) -> None:
        parts = [repr((seed, key, row)).encode("utf-8", "surrogatepass") for key in keys for row in range(rows)]
        hashes = [int.from_bytes(hashlib.sha256(part).digest()[:8], "little") for part in parts]
        self.generators = [torch.Generator().manual_seed(number) for number in hashes]
        self.rows, self.device = rows, device

    def take(self, step: int, documents: Tensor) -> Tensor:
        """(A*K,) in [0, 1) for all rows of the documents (A,); call it for consecutive steps."""
        if step % self.block == 0:
            drawn = [torch.rand(self.block, dtype=torch.double, generator=generator) for generator in self.generators]
            self.drawn = torch.stack(drawn, 1).unflatten(1, (-1, self.rows)).to(self.device)  # (block, B, K)
        return self.drawn[step % self.block, documents].flatten()


def sample(logits: Tensor, config: DecodingConfig, draws: Tensor) -> Tensor:
    """Sample a token (N,) from each row of logits (N, V) after temperature, top_k and top_p, in this order.

    draws (N,) are uniform over [0, 1): each selects a token by the cumulative distribution.
    """
    logits = logits / config.temperature
    if 0 < config.top_k < logits.shape[1]:
        logits = logits.masked_fill(logits < logits.topk(config.top_k).values[:, -1:], -math.inf)
    if config.top_p < 1:
        ordered, order = logits.softmax(1).sort(1, descending=True)
        outside = ordered.cumsum(1) - ordered >= config.top_p  # the tokens before it already have enough mass
        logits = logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), -math.inf)
    # in vocabulary order, in double precision, scaled to the sum so that no draw lies beyond the last token
    mass = logits.softmax(1, dtype=torch.double).cumsum(1)
    return torch.searchsorted(mass, (draws * mass[:, -1])[:, None], right=True)[:, 0]
