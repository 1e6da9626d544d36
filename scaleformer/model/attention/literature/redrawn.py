"""Shared by attentions with random features: directions redrawn on schedule, determined by the saved state alone."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn


class Redrawn(nn.Module):
    """Directions from `draw`, redrawn every `redraw_every` training passes; 0 keeps the first draw."""

    redraw_every: int
    seed: int
    passes: int
    drawn: int

    def begin_draws(self, redraw_every: int) -> None:
        """Make the first draw."""
        self.redraw_every = redraw_every
        self.seed, self.passes, self.drawn = int(torch.randint(2**31, (), device="cpu")), 0, 0
        self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Draw the directions from the seed `seed` + `drawn`, the number of draws so far."""

    # Not buffers: averaging checkpoints would average the w_r of several draws, which gives no valid directions.
    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.seed, self.passes, self.drawn])

    def set_extra_state(self, state: Tensor) -> None:
        self.seed, self.passes, self.drawn = state.tolist()
        self.draw()

    def redraw(self) -> None:
        """Redraw if it is due; call before a forward pass."""
        if self.training and self.redraw_every and self.passes // self.redraw_every > self.drawn:
            self.drawn = self.passes // self.redraw_every
            self.draw()

    def counted(self, out: Tensor) -> Tensor:
        """The output of a forward pass, with its backward pass counted: gradient checkpointing repeats the forward."""
        if self.training and out.requires_grad:
            out.register_hook(self._count)
        return out

    def _count(self, gradient: Tensor) -> None:
        self.passes += 1
