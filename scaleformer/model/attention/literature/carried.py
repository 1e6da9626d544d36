"""What an attention remembers from one batch to the next: the last states of each row's document."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class CarriedStates(NamedTuple):
    """The inputs of an attention layer at the last P tokens of each row, without gradient.

    states  (B, P, D), zeros before the document
    known   (B,) long, how many of them are of the document, the last ones
    """

    states: Tensor
    known: Tensor

    @classmethod
    def nothing(cls, rows: int, size: int, weight: Tensor) -> CarriedStates:
        """Of new documents, P = size, on the device of weight (n, D)."""
        return cls(weight.new_zeros(rows, size, weight.shape[1]), weight.new_zeros(rows, dtype=torch.long))

    def continued(self, continues: Tensor) -> CarriedStates:
        """For the next batch, of at most as many rows, where continues (B,) bool: other rows begin with nothing, and so
        do rows of a step that was skipped for numbers that are not finite."""
        states, known = (part[: len(continues)].to(continues.device) for part in self)
        stays = continues & states.isfinite().all(2).all(1)  # (B,)
        return CarriedStates(states.masked_fill(~stays[:, None, None], 0.0), known * stays)

    def after(self, x: Tensor, mask: Tensor) -> CarriedStates:
        """After an example x (B, L, D) with mask (B, L) bool: its last states, and as many as fit of those before."""
        size, lengths = self.states.shape[1], mask.sum(1)  # (B,)
        index = lengths[:, None] + torch.arange(size, device=x.device)  # (B, P), where pads do not reach
        last = self.before(x).gather(1, index[..., None].expand(-1, -1, x.shape[2]))  # (B, P, D)
        return CarriedStates(last, (self.known + lengths).clamp(max=size))

    def before(self, x: Tensor) -> Tensor:
        """These states, then x (B, L, D), without gradient: (B, P + L, D)."""
        return torch.cat([self.states.to(x.dtype), x.detach()], dim=1)
