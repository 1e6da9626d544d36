"""What attentions by random features share: directions that are drawn anew on schedule, from the saved state alone."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn


class Redrawn(nn.Module):
    """Directions by `draw`, others after each `redraw_every` training passes; 0 keeps the first for ever."""

    redraw_every: int
    seed: int
    passes: int
    drawn: int

    def begin_draws(self, redraw_every: int) -> None:
        """Draw the first. Raises ValueError for less than no passes."""
        if redraw_every < 0:
            raise ValueError(f"model.attention.redraw_every is {redraw_every}: it must be at least 0, never")
        self.redraw_every = redraw_every
        self.seed, self.passes, self.drawn = int(torch.randint(2**31, (), device="cpu")), 0, 0
        self.draw()

    @abstractmethod
    def draw(self) -> None:
        """The directions of the seed and the number of draws, `seed` + `drawn`."""

    # No buffers: averages of the weights would average the w_r of several draws, which are then no directions any more.
    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.seed, self.passes, self.drawn])

    def set_extra_state(self, state: Tensor) -> None:
        self.seed, self.passes, self.drawn = state.tolist()
        self.draw()

    def redraw(self) -> None:
        """Before a forward pass."""
        if self.training and self.redraw_every and self.passes // self.redraw_every > self.drawn:
            self.drawn = self.passes // self.redraw_every
            self.draw()

    def counted(self, out: Tensor) -> Tensor:
        """What a forward pass returns, whose backward pass is counted: gradient checkpointing repeats the forward."""
        if self.training and out.requires_grad:
            out.register_hook(self._count)
        return out

    def _count(self, gradient: Tensor) -> None:
        self.passes += 1
