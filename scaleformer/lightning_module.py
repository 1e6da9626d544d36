"""Thin adapter: batch -> model -> loss -> log."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from .batch import Batch
from .model.transformer import Transformer
from .ops.cross_entropy import linear_cross_entropy
from .optimization import OptimizerConfig, ScheduleConfig


class TranslationModule(pl.LightningModule):
    """Trains a Transformer by cross-entropy on the target tokens.

    package          what a checkpoint must hold besides the weights, so that it translates on its own (`checkpoint`)
    label_smoothing  share of the probability spread over the whole vocabulary, in training only
    """

    def __init__(
        self,
        model: Transformer,
        package: dict[str, Any],
        optimizer: OptimizerConfig,
        schedule: ScheduleConfig,
        label_smoothing: float = 0.1,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}: it must be in [0, 1)")
        self.model = model
        self.package = package
        self.optimizer_config = optimizer
        self.schedule_config = schedule
        self.label_smoothing = label_smoothing

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        loss, tokens = self._loss(batch, self.label_smoothing)
        self.log("train/loss", loss.detach(), batch_size=tokens)
        return loss

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        loss, tokens = self._loss(batch, 0.0)
        self.log("val/loss", loss, batch_size=tokens, on_epoch=True, sync_dist=True)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        self.log("train/gradient_norm", torch.nn.utils.get_total_norm(gradients))
        self.log("train/learning_rate", optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        self._log_step()

    def on_validation_epoch_end(self) -> None:
        self._log_step()

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer_config.build(self.parameters())
        scheduler = self.schedule_config.build(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["scaleformer"] = self.package

    def _log_step(self) -> None:
        """The x-axis of every logger: optimizer steps done. Lightning's own is one less in training."""
        self.log("step", float(self.trainer.global_step))

    def _loss(self, batch: Batch, label_smoothing: float) -> tuple[Tensor, int]:
        """Mean cross-entropy in nats a real target token, and the number of these."""
        states = self.model(batch)[batch.target_mask]  # (tokens, D)
        targets = batch.target_output[batch.target_mask]  # (tokens,)
        return linear_cross_entropy(states, self.model.output_weight, targets, label_smoothing), len(targets)
