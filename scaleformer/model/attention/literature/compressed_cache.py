"""The decoding state of the compressive transformer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from scaleformer.model.attention.state import KeyValueCache, take_rows


@dataclass
class CompressedCache(KeyValueCache):
    """Keys and values (rows, H, W, d): of the last K compressed memories, then of the last M + C tokens, in a ring.
    And of these tokens what the compression reads:

    states  (rows, 1, M + C, D), or None
    usage   (rows, 1, W, 1), the attention that they got, or None; the first K are never read
    """

    states: Tensor | None = None
    usage: Tensor | None = None

    def arrive(self, x: Tensor, place: int, compressed: int) -> None:
        """A token of states x (rows, D) takes a place of the ring, which is behind K = `compressed` slots."""
        if self.states is not None:
            self.states[:, 0, place] = x
        if self.usage is not None:
            self.usage[:, 0, compressed + place] = 0

    def note(self, slots: Tensor, weights: Tensor) -> None:
        """Tokens in slots (T,) got the attention weights (rows, H, 1, T)."""
        if self.usage is not None:
            self.usage[:, 0, :, 0].index_add_(1, slots, weights.sum((1, 2)))

    def keep(self, parts: Sequence[Tensor], compressed: int) -> None:
        """Keys and values (rows, H, n, d) of n new compressed memories, after which the last K are kept."""
        for buffer, part in zip((self.key, self.value), parts, strict=True):
            kept = torch.cat([buffer[:, :, :compressed], part], dim=2)
            buffer[:, :, :compressed] = kept[:, :, -compressed:]

    def reorder(self, rows: Tensor) -> CompressedCache:
        states, usage = (x if x is None else take_rows(x, rows, x.shape[2]) for x in (self.states, self.usage))
        return replace(super().reorder(rows), states=states, usage=usage)
