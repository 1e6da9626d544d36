"""A cache of keys and values of which each row keeps some for good: those of marked tokens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from scaleformer.model.attention.state import KeyValueCache, grow
from scaleformer.ops.segments.layout import NO_SEGMENT


@dataclass
class MarkedCache(KeyValueCache):
    """Keys and values (rows, H, T, d): first `fixed` slots that are written over, then the marked tokens of each row.

    The mask says which slots a row sees: of the first ones, those whose token is not marked.

    fixed    slots before those of marked tokens
    segment  (rows,) that of the last token, far below 0 before the first
    """

    fixed: int = field(kw_only=True)
    segment: Tensor = field(kw_only=True)

    @classmethod
    def begin(cls, key: Tensor, value: Tensor, fixed: int) -> MarkedCache:
        rows, _, size, _ = key.shape
        mask = torch.zeros(rows, size, dtype=torch.bool, device=key.device)
        segment = torch.full((rows,), NO_SEGMENT, device=key.device)
        return cls(key, value, fixed, mask, fixed=fixed, segment=segment)

    def mark(self, key: Tensor, value: Tensor, slot: int, marked: Tensor, segments: Tensor) -> MarkedCache:
        """The cache after key and value (rows, H, d) were written to a slot, with the tokens of the rows marked
        (rows,) bool in slots of their own; segments (rows,)."""
        assert self.mask is not None
        keys, values, mask, length, fixed = self.key, self.value, self.mask, self.length, self.fixed
        mask[:, slot] = ~marked
        rows = marked.nonzero()[:, 0]
        if len(rows):
            place = fixed + mask[rows, fixed:].sum(1)  # (n,)
            length = max(length, int(place.max()) + 1)
            keys, values, mask = grow(keys, length, 2), grow(values, length, 2), grow(mask, length, 1)
            keys[rows, :, place], values[rows, :, place], mask[rows, place] = key[rows], value[rows], True
        return MarkedCache(keys, values, length, mask, fixed=fixed, segment=segments)

    def reorder(self, rows: Tensor) -> MarkedCache:
        return replace(super().reorder(rows), segment=self.segment[rows])
