"""Callbacks of the training loop: translating the validation set, seeding, averaging weights, early stopping."""

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
from pytorch_lightning.callbacks import Callback, EarlyStopping, WeightAveraging
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from scaleformer.batch import Batch
from scaleformer.checkpoints.run_config import target_language
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.scores import corpus_bleu, corpus_chrf
from scaleformer.system.devices import gathered
from scaleformer.training.carried_memory import CarriedMemory
from scaleformer.training.interruption import SignalWatch
from scaleformer.training.lightning_internals import restart_average
from scaleformer.training.module import TranslationModule
from scaleformer.training.peak_memory import TrimMemory
from scaleformer.training.progress import TrainingProgress
from scaleformer.training.saving import BestCheckpoint, FinalCheckpoint, LastCheckpoint
from scaleformer.training.settings import CallbacksConfig


class ValidationBleu(Callback):
    """Translates a sample of the validation set and logs `val/bleu` and `val/chrf` (chrF++).

    An example is a document, or the part of one that fits `data.max_tokens`; segments are joined by a space. The
    commands evaluate whole documents; this curve serves to choose checkpoints. Every validation uses the same sample,
    whatever the seed and the number of processes. Each process translates its share.

    With several corpora, each has `val/bleu/NAME` and `val/chrf/NAME`; `val/bleu` and `val/chrf` are their means.

    data      names the examples; its target tokenizer turns tokens into text
    examples  how many over all processes (per corpus where there are several); examples of one name stay together
    decoding  greedy by default, since it runs at every validation
    metrics   how texts are compared; with several corpora, `auto` follows the target language of each
    """

    def __init__(
        self, data: DocumentDataModule, examples: int, decoding: DecodingConfig, metrics: Metrics | None = None
    ) -> None:
        self.data = data
        self.examples = examples
        self.decoding = decoding
        self.metrics = metrics or Metrics()
        self.waiting: list[tuple[Tensor, Tensor, str, str]] = []  # tokens and segments of the source, reference, corpus
        self.translated: list[tuple[str, str, str]] = []  # hypothesis, reference, corpus

    @cached_property
    def drawn(self) -> set[tuple[str, str]]:
        """The corpora and names of the examples to translate."""
        corpora = {name: part for name, part in self.data.parts.items() if "valid" in part.sources} or {"": self.data}
        return {(corpus, name) for corpus, data in corpora.items() for name in self._draw(data.validation_ids())}

    def _draw(self, ids: Sequence[str]) -> set[str]:
        """Names of examples. Drawn at random: validation runs from short to long."""
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
        if trainer.sanity_checking or dataloader_idx:  # the second loader cuts the same documents otherwise
            return
        rows = [row for row, name in enumerate(batch.ids) if (batch.corpus, name) in self.drawn]  # fillers have no ids
        if len(self.waiting) + len(rows) > len(batch):  # at most one batch, of similar lengths
            self._translate(pl_module)
        for row in rows:
            real, target = batch.source_mask[row], batch.target_output[row][batch.target_mask[row]]
            source = (batch.source[row][real], batch.source_segments[row][real])
            self.waiting.append((*source, self._text(target.tolist()), batch.corpus))

    def _translate(self, pl_module: pl.LightningModule) -> None:
        """Translate the waiting examples."""
        assert isinstance(pl_module, TranslationModule)
        if not self.waiting:
            return
        tokens, segments, references, corpora = zip(*self.waiting, strict=True)
        source, source_segments = (pad_sequence(list(rows), batch_first=True) for rows in (tokens, segments))  # (B, S)
        lengths = torch.tensor([len(row) for row in tokens], device=source.device)
        mask = torch.arange(source.shape[1], device=source.device) < lengths[:, None]  # (B, S)
        best = decode(pl_module.model, source, mask, source_segments, self.decoding)
        self.translated += zip((self._text(row[0].tokens) for row in best), references, corpora, strict=True)
        self.waiting = []

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._translate(pl_module)
        translated = [one for part in gathered(self.translated, trainer.world_size) for one in part]
        corpora = sorted({corpus for *_, corpus in translated})
        found = [self._scores(corpus, [pair for *pair, own in translated if own == corpus]) for corpus in corpora]
        if found:
            scores = {name: sum(own[name] for own in found) / len(found) for name in found[0]}
            scores |= {f"{n}/{c}": v for c, own in zip(corpora, found, strict=True) if c for n, v in own.items()}
            pl_module.log_dict(scores, prog_bar=True, sync_dist=False)  # already equal in all processes
        self.translated = []

    def _scores(self, corpus: str, pairs: list[list[str]]) -> dict[str, float]:
        hypotheses, references = (list(side) for side in zip(*pairs, strict=True))
        metrics = self.metrics.for_language(target_language(self.data.parts[corpus].config)) if corpus else self.metrics
        try:
            metrics.check(references)
        except ValueError as error:  # worth a warning, not worth ending the training
            warnings.warn(str(error), stacklevel=2)
        return {
            "val/bleu": corpus_bleu(hypotheses, references, metrics),
            "val/chrf": corpus_chrf(hypotheses, references, metrics),
        }

    def _text(self, tokens: Sequence[int]) -> str:
        return " ".join(self.data.target_tokenizer.decode_segments(tokens)).strip()


class RandomState(Callback):
    """Seeds torch, numpy and Python before every batch from (seed, batches trained on, process).

    The draws of a step then depend neither on earlier draws (of a validation or of an iterator over batches) nor on a
    resume, and a checkpoint need not hold the random states of all processes.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        seen = trainer.fit_loop.epoch_loop.total_batch_idx
        key = np.random.SeedSequence((self.seed, seen + 1, trainer.global_rank)).generate_state(3)
        own, numpy, python = (int(number) for number in key)
        torch.manual_seed(own)  # seeds all devices
        np.random.seed(numpy)  # noqa: NPY002
        random.seed(python)


class WeightAverage(WeightAveraging):
    """Exponential moving average of the weights from step `start_step` on; before that, the weights themselves.

    The average of n weights takes in the next with a decay of min(decay, (1 + n) / (10 + n)), so that the first weights
    soon count for little. Lightning's own average has no such warm-up. Until it starts, it keeps, validates and saves
    the initial weights. It also averages tensor by tensor, which is slower.
    """

    def __init__(self, decay: float, start_step: int = 0) -> None:
        super().__init__(multi_avg_fn=self._update)
        self.decay = decay
        self.start_step = start_step

    def _update(self, averages: list[Tensor], weights: list[Tensor], averaged: Tensor | int) -> None:
        """Move the averages of `averaged` weights towards the next weights, in place; integers are copied."""
        count = int(averaged)
        if averages[0].is_floating_point():
            torch._foreach_lerp_(averages, weights, 1 - min(self.decay, (1 + count) / (10 + count)))
        else:
            torch._foreach_copy_(averages, weights)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        if trainer.global_step <= self.start_step:
            restart_average(self)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the extra state of modules (the random features of `performer`) as it is: it has no average."""
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        present = checkpoint.get("current_model_state", {})
        checkpoint["state_dict"] |= {k: v for k, v in present.items() if k.endswith("_extra_state")}


class Patience(EarlyStopping):
    """Early stopping that says so, and survives a resume: a resumed run that it has ended trains no further, unless the
    patience is raised. (Lightning's own restores the patience, but only checks it at the next validation.)"""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.wait_count >= self.patience

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count >= self.patience and trainer.is_global_zero:
            best = f"{self.wait_count} validations without a better {self.monitor} than {float(self.best_score):.4f}"
            print(f"{best}: callbacks.early_stopping.patience={self.patience} ends the training", flush=True)


def build_callbacks(
    config: CallbacksConfig, run: Path, data: DocumentDataModule, seed: int, signals: SignalWatch, metrics: Metrics
) -> list[Callback]:
    """The callbacks of `conf/callbacks`, in the order that they need. Validation BLEU comes before the average, because
    the average puts the raw weights back when validation ends. The final checkpoint comes before it too, because
    training ends with the average in place of the weights. Lightning calls the two other checkpoints last."""
    checkpoint, ema, patience = config.checkpoint, config.ema, config.early_stopping.patience
    last, folder = run / "checkpoints" / "last.ckpt", run / "checkpoints"
    callbacks: list[Callback] = [TrainingProgress(), RandomState(seed), TrimMemory(), signals]
    if data.config.consecutive:
        callbacks.append(CarriedMemory())
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
