"""Losses of attentions themselves, which training adds to that of the translation."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn


class AuxiliaryLoss(nn.Module):
    """An attention with a loss of its own."""

    @abstractmethod
    def auxiliary_loss(self) -> Tensor | None:
        """A scalar for the latest training batch, added to the loss of each target token; None: nothing to add."""


def with_auxiliary_loss(model: nn.Module) -> list[AuxiliaryLoss]:
    """The attentions of a model that have a loss of their own."""
    return [module for module in model.modules() if isinstance(module, AuxiliaryLoss)]


def auxiliary_loss(model: nn.Module) -> Tensor | float:
    """The sum of these losses: what training adds to the cross-entropy of each target token."""
    parts = [attention.auxiliary_loss() for attention in with_auxiliary_loss(model)]
    return sum(part for part in parts if part is not None)
