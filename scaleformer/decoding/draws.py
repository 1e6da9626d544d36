"""Random numbers for sampling that do not depend on the rest of the batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


class Draws:
    """Uniform draws for sampling, which depend on the seed, the key of the document and the number of the row in it."""

    block = 256  # steps drawn at once: a separate draw for each row and step would take longer than the step

    def __init__(self, seed: int, keys: Sequence[str], rows: int, device: torch.device) -> None:
        self.generators = [torch.Generator().manual_seed(_hash(seed, key, row)) for key in keys for row in range(rows)]
        self.rows, self.device = rows, device

    def take(self, step: int, documents: Tensor) -> Tensor:
        """(A*K,) in [0, 1) for all rows of the documents (A,); call it for consecutive steps."""
        if step % self.block == 0:
            drawn = [torch.rand(self.block, dtype=torch.double, generator=generator) for generator in self.generators]
            self.drawn = torch.stack(drawn, 1).unflatten(1, (-1, self.rows)).to(self.device)  # (block, B, K)
        return self.drawn[step % self.block, documents].flatten()


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).digest()[:8], "little")
