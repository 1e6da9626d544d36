"""`data.consecutive`: attentions that read what the batch before left of each document."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from torch import nn

from scaleformer.batch import Batch
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.model.attention.literature.carried import CarriedStates
from scaleformer.model.attention.literature.transformer_xl import TransformerXLAttention


def carrying(model: nn.Module) -> list[TransformerXLAttention]:
    """The attentions of a model that carry their memory from one batch to the next, in layer order."""
    return [module for module in model.modules() if isinstance(module, TransformerXLAttention)]


def check_consecutive(model: nn.Module, data: DocumentDataModule, processes: int) -> None:
    """Raises ValueError where data.consecutive=true has no effect, or meets what it does not work with."""
    if not data.config.consecutive:
        return
    otherwise = "or data.consecutive=false"
    if not carrying(model):
        raise ValueError(
            "data.consecutive=true: the decoder's attention carries no memory from one example to the next: add "
            f"model/attention=transformer_xl, or compressive, {otherwise}"
        )
    if processes != 1:
        raise ValueError(
            f"data.consecutive=true: trainer.devices times trainer.num_nodes is {processes}: make it 1 {otherwise}"
        )


class CarriedMemory(Callback):
    """Tells the attentions before each training batch which rows continue (`Batch.continues`), and that no other batch
    does. A checkpoint holds what the latest one left."""

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        for attention in carrying(pl_module):
            attention.carry(batch.continues)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        for attention in carrying(pl_module):
            attention.carry(None)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        left = [attention.carried for attention in carrying(pl_module)]
        checkpoint["carried"] = [None if states is None else tuple(states) for states in left]

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        for attention, left in zip(carrying(pl_module), checkpoint["carried"], strict=True):
            attention.carried = None if left is None else CarriedStates(*left)
