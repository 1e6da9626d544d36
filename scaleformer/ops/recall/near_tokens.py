"""The tokens of the segments near by, whole: what decoding keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.layout import NO_SEGMENT

_FIRST_ROOM = 32


class Leaving(NamedTuple):
    """The tokens that some rows (r) no longer hold, in order, the oldest first.

    columns  (r, H, g, c) each; g is the most that leave a row
    numbers  (r, g) long, their segments
    real     (r, g) boolean, False behind the last one of a row
    length   (r,) long, how many tokens the row held
    """

    columns: list[Tensor]
    numbers: Tensor
    real: Tensor
    length: Tensor


@dataclass
class NearTokens:
    """Row by row the tokens of some last segments, in order, the oldest first; changed in place.

    columns  (B, H, T, c) each: keys (c = d), values (c = e) and what else belongs to a token
    numbers  (B, T) long, their segments
    length   (B,) long, how many they are; T holds the most of any row, and doubles when it no longer does
    most     at least the greatest `length`
    segment  (B,) long, that of the last token
    """

    columns: list[Tensor]
    numbers: Tensor
    length: Tensor
    most: int
    segment: Tensor

    @classmethod
    def none(cls, batch: int, heads: int, widths: Sequence[int], like: Tensor) -> NearTokens:
        """Before the first token, in the dtype of `like` and where it is; a column of each width."""
        return cls(
            columns=[like.new_zeros(batch, heads, _FIRST_ROOM, width) for width in widths],
            numbers=torch.zeros(batch, _FIRST_ROOM, dtype=torch.long, device=like.device),
            length=torch.zeros(batch, dtype=torch.long, device=like.device),
            most=0,
            segment=torch.full((batch,), NO_SEGMENT, device=like.device),
        )

    def used(self) -> list[Tensor]:
        """The columns without the room behind them, (B, H, most, c)."""
        return [column[:, :, : self.most] for column in self.columns]

    def offset(self) -> Tensor:
        """(B, most) long: 0 for the last token of a row, -1 for the one before; beyond 0 there is none."""
        return torch.arange(self.most, device=self.length.device) - self.length[:, None] + 1

    def distance(self, near: int) -> Tensor:
        """(B, most) long, in segments from that of the last token, -near to 0."""
        return (self.numbers[:, : self.most] - self.segment[:, None]).clamp(-near, 0)

    def append(self, *token: Tensor) -> None:
        """Write a token behind the others of each row; (B, H, c) for each column."""
        self.most += 1
        room = self.numbers.shape[1]
        if self.most > room:
            self.columns = [functional.pad(column, (0, 0, 0, room)) for column in self.columns]
            self.numbers = functional.pad(self.numbers, (0, room))
        row = torch.arange(self.length.shape[0], device=self.length.device)
        for column, new in zip(self.columns, token, strict=True):
            column[row, :, self.length] = new.to(column)
        self.numbers[row, self.length] = self.segment
        self.length += 1

    def begin(self, segments: Tensor, rows: Tensor, near: int) -> Leaving:
        """Begin segment segments[b] in each row b of `rows` (r,) long; what is farther than `near` from it leaves."""
        used = slice(0, self.most)
        columns, numbers = [column[rows, :, used] for column in self.columns], self.numbers[rows, used]
        length = self.length[rows]
        place = torch.arange(self.most, device=rows.device)  # (T,)
        real = (segments[rows, None] - numbers > near) & (place < length[:, None])  # (r, T), the first ones of a row
        gone = real.sum(1)  # (r,)
        kept = (place + gone[:, None]).clamp(max=max(self.most - 1, 0))  # (r, T)
        for column, old in zip(self.columns, columns, strict=True):
            column[rows, :, used] = old.take_along_dim(kept[:, None, :, None], dim=2)
        self.numbers[rows, used] = numbers.gather(1, kept)
        self.length[rows] -= gone
        self.most = int(self.length.max())
        self.segment[rows] = segments[rows]
        first = slice(0, int(gone.max()))
        return Leaving([column[:, :, first] for column in columns], numbers[:, first], real[:, first], length)

    def reorder(self, index: Tensor) -> NearTokens:
        """Those whose row b is this one's row index[b]; index (B',) long."""
        return replace(
            self,
            columns=[column.index_select(0, index) for column in self.columns],
            **{name: getattr(self, name).index_select(0, index) for name in ("numbers", "length", "segment")},
        )
