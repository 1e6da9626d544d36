"""What happens around the training loop: translation of the validation set, random states, checkpoints."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, EMAWeightAveraging, ModelCheckpoint

from .batch import Batch
from .data.datamodule import DocumentDataModule
from .decoding import DecodingConfig, decode
from .evaluation.bleu import corpus_bleu
from .lightning_module import TranslationModule
from .progress import TrainingProgress
from .settings import CallbacksConfig


class ValidationBleu(Callback):
    """Logs `val/bleu`: sacrebleu of real translations of the first examples of the validation set.

    An example is a document, or the part of one that fits `data.max_tokens`; segments are joined by a space. The
    scripts evaluate whole documents; this curve is for choosing checkpoints.

    data      whose target tokenizer turns tokens into text
    examples  how many
    decoding  greedy by default, since it runs at every validation
    tokenize  sacrebleu's tokenizer
    """

    def __init__(
        self, data: DocumentDataModule, examples: int, decoding: DecodingConfig, tokenize: str = "13a"
    ) -> None:
        self.data = data
        self.examples = examples
        self.decoding = decoding
        self.tokenize = tokenize
        self.hypotheses: list[str] = []
        self.references: list[str] = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        count = min(len(batch), self.examples - len(self.hypotheses))
        if count <= 0 or trainer.sanity_checking:
            return
        assert isinstance(pl_module, TranslationModule)
        best = decode(
            pl_module.model,
            batch.source[:count],
            batch.source_mask[:count],
            batch.source_segments[:count],
            self.decoding,
        )
        self.hypotheses += [self._text(row[0].tokens) for row in best]
        real = zip(batch.target_output[:count], batch.target_mask[:count], strict=True)
        self.references += [self._text(tokens[mask].tolist()) for tokens, mask in real]

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.hypotheses:
            score = corpus_bleu(self.hypotheses, self.references, tokenize=self.tokenize)
            pl_module.log("val/bleu", torch.tensor(score), prog_bar=True, sync_dist=True)
        self.hypotheses, self.references = [], []

    def _text(self, tokens: Sequence[int]) -> str:
        return " ".join(self.data.target_tokenizer.decode_segments(tokens)).strip()


class RandomState(Callback):
    """Random states of torch, numpy and Python in the checkpoint, as tensors and plain numbers.

    Each step draws on from where the step before left off, whatever was drawn between them (an iterator over batches
    takes a number from torch's global generator when it is made, and how often one is made depends on validations and
    resumes). So a resumed training draws what the uninterrupted one would have drawn. Where there are several
    processes, all go on with the states of the first.
    """

    def __init__(self) -> None:
        self.states: tuple[Any, ...] | None = None

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        if self.states is None:
            return
        own, cuda, numpy, python = self.states
        torch.set_rng_state(own)
        if cuda is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(cuda)
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
        self.states = torch.get_rng_state(), cuda, np.random.get_state(), random.getstate()  # noqa: NPY002

    def state_dict(self) -> dict[str, Any]:
        if self.states is None:
            return {}
        own, cuda, (name, keys, *rest), (version, numbers, gauss) = self.states
        numpy = [str(name), torch.from_numpy(keys.astype(np.int64)), *(float(x) for x in rest)]
        return {"torch": own, "cuda": cuda, "numpy": numpy, "python": [version, list(numbers), gauss]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not state_dict:
            return
        name, keys, position, has_gauss, cached = state_dict["numpy"]
        version, numbers, gauss = state_dict["python"]
        numpy = (name, keys.numpy().astype(np.uint32), int(position), int(has_gauss), cached)
        self.states = state_dict["torch"], state_dict["cuda"], numpy, (version, tuple(numbers), gauss)


class WeightAverage(EMAWeightAveraging):
    """Exponential moving average of the weights, from those after `start_step` steps on; until then the weights as are.

    Lightning's own keeps the initial weights until then, and would validate and save these.
    """

    def __init__(self, decay: float, start_step: int = 0) -> None:
        super().__init__(decay=decay)
        self.start_step = start_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        assert self._average_model is not None
        if trainer.global_step <= self.start_step:
            self._average_model.n_averaged.zero_()  # the next update is a copy then
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)


class FinalCheckpoint(Callback):
    """last.ckpt as training stands when it ends, wherever that is between two regular checkpoints."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(self.path)


def build_callbacks(config: CallbacksConfig, run: Path, data: DocumentDataModule) -> list[Callback]:
    """The callbacks that `conf/callbacks` describes, in the order that they need.

    Before the averaging come the translation, since the end of a validation puts the raw weights back, and the final
    checkpoint, since the end of training replaces them by the average.
    """
    checkpoint, ema, patience = config.checkpoint, config.ema, config.early_stopping.patience
    folder = run / "checkpoints"
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False, "save_weights_only": False}
    callbacks: list[Callback] = [TrainingProgress(), RandomState()]
    bleu = config.validation_bleu
    if bleu.examples:
        callbacks.append(ValidationBleu(data, bleu.examples, bleu.decoding, bleu.tokenize))
    callbacks.append(FinalCheckpoint(folder / "last.ckpt"))
    if ema.decay:
        callbacks.append(WeightAverage(ema.decay, ema.start_step))
    if patience:
        callbacks.append(EarlyStopping(checkpoint.monitor, patience=patience, mode=checkpoint.mode))
    callbacks.append(ModelCheckpoint(filename="best", monitor=checkpoint.monitor, mode=checkpoint.mode, **common))
    callbacks.append(ModelCheckpoint(filename="last", every_n_train_steps=checkpoint.every_n_train_steps, **common))
    return callbacks
