"""What happens around the training loop: translation of the validation set, random numbers, averaging."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, EMAWeightAveraging
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from scaleformer.batch import Batch
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.evaluation.corpus import target_language
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.scores import corpus_bleu, corpus_chrf
from scaleformer.training.interruption import SignalWatch
from scaleformer.training.module import TranslationModule
from scaleformer.training.peak_memory import TrimMemory
from scaleformer.training.progress import TrainingProgress
from scaleformer.training.saving import BestCheckpoint, FinalCheckpoint, LastCheckpoint
from scaleformer.training.settings import CallbacksConfig
from scaleformer.translation.search import DecodingConfig, decode


class ValidationBleu(Callback):
    """Logs `val/bleu` and `val/chrf` (chrF++) of real translations of examples drawn from the whole validation set.

    An example is a document, or the part of one that fits `data.max_tokens`; segments are joined by a space. The
    scripts evaluate whole documents; this curve is for choosing checkpoints. The draw is the same in every validation,
    whatever the seed of the run and the number of processes; each process translates what it holds of it.

    Of several corpora each has its own `val/bleu/NAME` and `val/chrf/NAME`, and the others are the means of these.

    data      which names the examples, and whose target tokenizer turns tokens into text
    examples  how many, of all processes together (of several corpora, of each); examples of one name are taken together
    decoding  greedy by default, since it runs at every validation
    metrics   how text is compared; `auto`, by the target language of each of several corpora
    """

    def __init__(
        self, data: DocumentDataModule, examples: int, decoding: DecodingConfig, metrics: Metrics | None = None
    ) -> None:
        self.data = data
        self.examples = examples
        self.decoding = decoding
        self.metrics = metrics or Metrics()
        self.waiting: list[tuple[Tensor, Tensor, str, str]] = []  # tokens and segments of the source, reference, corpus
        self.hypotheses: list[str] = []
        self.references: list[str] = []
        self.corpora: list[str] = []

    @cached_property
    def drawn(self) -> set[tuple[str, str]]:
        """The corpora and names of the examples to translate."""
        corpora = {name: part for name, part in self.data.parts.items() if "valid" in part.sources} or {"": self.data}
        return {(corpus, name) for corpus, data in corpora.items() for name in self._draw(data.validation_ids())}

    def _draw(self, ids: Sequence[str]) -> set[str]:
        """Names of examples. Validation goes from short to long: the first ones would be short."""
        counts = Counter(ids)
        names = sorted(counts)
        random.Random(0).shuffle(names)
        totals = accumulate(counts[name] for name in names)
        return {name for name, total in zip(names, totals, strict=True) if total - counts[name] < self.examples}

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if trainer.sanity_checking:
            return
        rows = [row for row, name in enumerate(batch.ids) if (batch.corpus, name) in self.drawn]  # a filler has no ids
        if len(self.waiting) + len(rows) > len(batch):  # together no more than a batch, that is about equally long
            self._translate(pl_module)
        for row in rows:
            real, target = batch.source_mask[row], batch.target_output[row][batch.target_mask[row]]
            source = (batch.source[row][real], batch.source_segments[row][real])
            self.waiting.append((*source, self._text(target.tolist()), batch.corpus))

    def _translate(self, pl_module: pl.LightningModule) -> None:
        """Translate what waits for it."""
        assert isinstance(pl_module, TranslationModule)
        if not self.waiting:
            return
        tokens, segments, references, corpora = zip(*self.waiting, strict=True)
        source, source_segments = (pad_sequence(list(rows), batch_first=True) for rows in (tokens, segments))  # (B, S)
        lengths = torch.tensor([len(row) for row in tokens], device=source.device)
        mask = torch.arange(source.shape[1], device=source.device) < lengths[:, None]  # (B, S)
        counted = self.data.target_tokenizer.counted
        best = decode(pl_module.model, source, mask, source_segments, self.decoding, counted=counted)
        self.hypotheses += [self._text(row[0].tokens) for row in best]
        self.references += references
        self.corpora += corpora
        self.waiting = []

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._translate(pl_module)
        translated = self._gathered(trainer)
        corpora = sorted({corpus for *_, corpus in translated})
        found = [self._scores(corpus, [pair for *pair, own in translated if own == corpus]) for corpus in corpora]
        if found:
            scores = {name: sum(own[name] for own in found) / len(found) for name in found[0]}
            scores |= {f"{n}/{c}": v for c, own in zip(corpora, found, strict=True) if c for n, v in own.items()}
            pl_module.log_dict(scores, prog_bar=True, sync_dist=False)  # the same for all processes already
        self.hypotheses, self.references, self.corpora = [], [], []

    def _scores(self, corpus: str, pairs: list[list[str]]) -> dict[str, float]:
        hypotheses, references = (list(side) for side in zip(*pairs, strict=True))
        metrics = self.metrics.for_language(target_language(self.data.parts[corpus].config)) if corpus else self.metrics
        try:
            metrics.check(references)
        except ValueError as error:  # a reason to look at the data, not to lose a training
            warnings.warn(str(error), stacklevel=2)
        return {
            "val/bleu": corpus_bleu(hypotheses, references, metrics),
            "val/chrf": corpus_chrf(hypotheses, references, metrics),
        }

    def _gathered(self, trainer: pl.Trainer) -> list[tuple[str, str, str]]:
        """Hypothesis, reference and corpus of all that the processes have translated, each document once."""
        own = list(zip(self.hypotheses, self.references, self.corpora, strict=True))
        parts: list[Any] = [own]
        if trainer.world_size > 1:
            parts = parts * trainer.world_size
            torch.distributed.all_gather_object(parts, own)
        return [text for part in parts for text in part]

    def _text(self, tokens: Sequence[int]) -> str:
        return " ".join(self.data.target_tokenizer.decode_segments(tokens)).strip()


class RandomState(Callback):
    """Seeds torch, numpy and Python anew before every batch, from (seed, batches trained on, process).

    So what a step draws depends neither on what was drawn before it (by a validation, by an iterator over batches) nor
    on whether the run was resumed, and a checkpoint needs no random states of all its processes.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        seen = trainer.fit_loop.epoch_loop.total_batch_idx
        key = np.random.SeedSequence((self.seed, seen + 1, trainer.global_rank)).generate_state(3)
        own, numpy, python = (int(number) for number in key)
        torch.manual_seed(own)  # of all devices
        np.random.seed(numpy)  # noqa: NPY002
        random.seed(python)


class WeightAverage(EMAWeightAveraging):
    """Exponential moving average of the weights, from those after `start_step` steps on; until then the weights as are.

    The average of n weights takes in the next at a decay of min(decay, (1 + n) / (10 + n)), so that after a few hundred
    steps it is not yet made of the first ones. Lightning's own has no such warm-up, keeps the initial weights until it
    starts, and would validate and save these; and it averages tensor by tensor.
    """

    def __init__(self, decay: float, start_step: int = 0) -> None:
        super().__init__(decay=decay)
        self._kwargs = {"multi_avg_fn": self._update}
        self.decay = decay
        self.start_step = start_step

    def _update(self, averages: list[Tensor], weights: list[Tensor], averaged: Tensor | int) -> None:
        """Move averages of `averaged` weights towards the next, in place; whole numbers are those of the next."""
        count = int(averaged)
        if averages[0].is_floating_point():
            torch._foreach_lerp_(averages, weights, 1 - min(self.decay, (1 + count) / (10 + count)))
        else:
            torch._foreach_copy_(averages, weights)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        assert self._average_model is not None
        if trainer.global_step <= self.start_step:
            self._average_model.n_averaged.zero_()  # the next update is a copy then
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """What a module keeps beside its weights (`performer` its draw) has no average: that of the present."""
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        present = checkpoint.get("current_model_state", {})
        checkpoint["state_dict"] |= {k: v for k, v in present.items() if k.endswith("_extra_state")}


class Patience(EarlyStopping):
    """Early stopping that stays with a run: what it has ended trains no more when it is resumed, unless the patience
    is raised. (Lightning's own restores the patience, and begins to wait at the next validation.)"""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.wait_count >= self.patience


def build_callbacks(
    config: CallbacksConfig, run: Path, data: DocumentDataModule, seed: int, signals: SignalWatch, metrics: Metrics
) -> list[Callback]:
    """The callbacks that `conf/callbacks` describes, in the order that they need.

    Before the averaging come the translation, since the end of a validation puts the raw weights back, and the final
    checkpoint, since the end of training replaces them by the average. Lightning calls the two other checkpoints last.
    """
    checkpoint, ema, patience = config.checkpoint, config.ema, config.early_stopping.patience
    last, folder = run / "checkpoints" / "last.ckpt", run / "checkpoints"
    callbacks: list[Callback] = [TrainingProgress(), RandomState(seed), TrimMemory(), signals]
    bleu = config.validation_bleu
    if bleu.examples:
        callbacks.append(ValidationBleu(data, bleu.examples, bleu.decoding, metrics))
    callbacks.append(FinalCheckpoint(last))
    if ema.decay:
        callbacks.append(WeightAverage(ema.decay, ema.start_step))
    if patience:
        callbacks.append(Patience(checkpoint.monitor, patience=patience, mode=checkpoint.mode))
    callbacks.append(
        BestCheckpoint(folder, "best", monitor=checkpoint.monitor, mode=checkpoint.mode, enable_version_counter=False)
    )
    callbacks.append(LastCheckpoint(last, checkpoint.every_n_train_steps, checkpoint.save_every_minutes))
    return callbacks
