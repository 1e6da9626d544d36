"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from scaleformer.data.stages import check_clock, share_of_time
from scaleformer.system.schema import Natural, OneOf, Range, Share, check_fields

if TYPE_CHECKING:
    import pytorch_lightning as pl

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer; `learning_rate` is the peak of the schedule.

    Weight decay applies to the weights of linear maps and token embeddings only: not to biases, norms and other
    parameters of an attention (relative embeddings, gates, salience), for which zero is no simpler than other values.
    """

    name: Annotated[str, OneOf(OPTIMIZERS)] = "adamw"
    learning_rate: Annotated[float, Range(gt=0)] = 2e-3
    beta1: Annotated[float, Range(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Range(ge=0, lt=1)] = 0.98
    eps: Annotated[float, Range(gt=0)] = 1e-9
    weight_decay: Annotated[float, Range(ge=0)] = 0.01

    def __post_init__(self) -> None:
        check_fields(self, "optimizer")

    def build(self, parameters: Iterable[tuple[str, nn.Parameter]], fused: bool = False) -> torch.optim.Optimizer:
        """parameters: named (`named_parameters`); frozen ones are left out. fused: one kernel for all, several times
        faster on a CPU too."""
        decaying, others = split_decaying(parameters)
        groups = [{"params": decaying, "weight_decay": self.weight_decay}, {"params": others, "weight_decay": 0.0}]
        betas = (self.beta1, self.beta2)
        return OPTIMIZERS[self.name](groups, lr=self.learning_rate, betas=betas, eps=self.eps, fused=fused or None)


def split_decaying(parameters: Iterable[tuple[str, nn.Parameter]]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """(with decay, without): parameters called `weight` that are matrices decay. Frozen ones are left out."""
    parts: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for name, parameter in parameters:
        if parameter.requires_grad:
            parts[not (name.endswith("weight") and parameter.ndim == 2)].append(parameter)
    return parts


@dataclass(frozen=True)
class ScheduleConfig:
    """The share of the peak learning rate at each step.

    name          "inverse_sqrt" [Vaswani 2017, section 5.3], "cosine" or "constant"
    warmup_steps  steps of the linear rise from 0 that comes first
    total_steps   where the cosine ends; null or -1 = with trainer.max_time
    floor         share of the peak at which the cosine ends
    """

    name: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    warmup_steps: Natural = 1000
    total_steps: int | None = None
    floor: Share = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "schedule")
        if self.floor and self.name != "cosine":
            raise ValueError(f"schedule.floor is {self.floor}: only schedule=cosine has a floor, not {self.name}")

    def factor(self, step: int, time: float = 0.0) -> float:
        """Share of the peak learning rate at `step`, counted from 0, when this share of trainer.max_time has passed."""
        warmup = max(self.warmup_steps, 1)
        rise = min((step + 1) / warmup, 1.0)
        if self.name == "inverse_sqrt":
            return rise * math.sqrt(warmup / max(step + 1, warmup))
        if self.name == "cosine":
            steps = self.total_steps or -1
            progress = min(max(step - warmup, 0) / max(steps - warmup, 1) if steps > 0 else time, 1.0)
            return rise * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
        return rise

    def notes(self, trainer: pl.Trainer) -> list[str]:
        """Lines for the user before a training. Raises ValueError for a cosine whose end cannot be known."""
        if self.name == "cosine" and (self.total_steps or -1) <= 0:
            mend = "set trainer.max_steps, or take another schedule (schedule=inverse_sqrt)"
            check_clock("schedule=cosine ends with trainer.max_steps or trainer.max_time", trainer, mend)
        end = max(self.total_steps or 0, self.warmup_steps + 1)
        if self.name == "cosine" and 0 < (self.total_steps or 0) < trainer.max_steps and end < trainer.max_steps:
            return [f"the learning rate is {self.floor:g} of its peak from step {end:,} on: schedule.total_steps="
                    f"{self.total_steps} is below trainer.max_steps={trainer.max_steps}"]  # fmt: skip
        if not 0 < trainer.max_steps <= self.warmup_steps:
            return []
        return [
            f"the learning rate is still rising when training ends: schedule.warmup_steps={self.warmup_steps} is not "
            f"below trainer.max_steps={trainer.max_steps}"
        ]

    def build(self, optimizer: torch.optim.Optimizer, trainer: pl.Trainer | None = None) -> LambdaLR:
        return LambdaLR(optimizer, lambda step: self.factor(step, share_of_time(trainer) or 0.0))


def refresh_rates(scheduler: LambdaLR) -> None:
    """Set the rates to those of this schedule: an optimizer from a checkpoint has those of its former schedule."""
    rates = zip(scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    for group, base, factor in rates:
        group["lr"] = base * factor(scheduler.last_epoch)
