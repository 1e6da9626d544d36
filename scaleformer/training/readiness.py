"""Checks before the first step that the data exist and fit the model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from scaleformer.data.config import MissingSplit
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.sources import SplitSource
from scaleformer.evaluation.scores import check_references
from scaleformer.model.transformer import Transformer
from scaleformer.text.documents import Document
from scaleformer.training.settings import Settings


def prepare(data: DocumentDataModule, settings: Settings) -> None:
    """Prepare the data, and check that every split that the run needs exists and can be read."""
    data.source("train")
    if settings.test.enabled:
        try:
            documents, source = data.documents(settings.test.split), data.source(settings.test.split)
            for corpus, part in getattr(source, "parts", (("", source),)):
                _check_references([d for d in documents if d.id.startswith(corpus and f"{corpus}/")], part)
        except MissingSplit as error:
            raise ValueError(
                f"{error} (the final evaluation needs it: set test.split=NAME, or test.enabled=false to skip it)"
            ) from error
    try:
        fingerprints(data, settings)
    except MissingSplit as error:
        if settings.data.format != "hub":
            raise
        raise ValueError(
            f'{error} (data.hub.train and data.hub.valid name the splits; data.hub.valid="" for none)'
        ) from error
    if settings.callbacks.early_stopping.patience:
        every, trainer = settings.trainer["val_check_interval"], settings.trainer
        batches = trainer["max_steps"] * trainer["accumulate_grad_batches"]
        what = "a valid split, and there is none" if "valid" not in data.sources else ""
        if isinstance(every, int) and 0 < batches < every:
            what = f"a validation before batch {batches:,}, the last one: lower trainer.val_check_interval={every}"
        if what:
            raise ValueError(f"callbacks.early_stopping.patience needs {what}, or patience=null")
    data.prepare_data()


def check_searches(settings: Settings, given: Sequence[str]) -> None:
    """Raises ValueError for a setting of a search among the overrides `given` that its strategy does not read."""
    bleu = "callbacks.validation_bleu.decoding."
    for prefix, search in (("decoding.", settings.decoding), (bleu, settings.callbacks.validation_bleu.decoding)):
        keys = [word.partition("=")[0] for word in given if word.startswith(prefix)]
        search.refuse_unread([key.removeprefix(prefix) for key in keys], prefix)


def _check_references(documents: Sequence[Document], source: SplitSource) -> None:
    try:
        check_references(documents)
    except ValueError as error:
        raise MissingSplit(f"{source.where}: {error} in {source.name!r}") from error


def check_lengths(model: Transformer, settings: Settings, data: DocumentDataModule) -> None:
    """Raises ValueError where a text of known length is longer than the model can read or write."""
    limits = model.most_source_tokens, model.most_target_tokens
    if limits == (math.inf, math.inf):
        return
    longest = {name: (split.longest_source, split.longest_target) for name, split in data.report.splits.items()}
    advice = dict.fromkeys(longest, "set a smaller data.max_tokens")
    if settings.test.enabled:  # whole documents; translations stop at the limit, which is counted
        corpus = data.encoded(settings.test.split)
        tokens = int(np.bincount(corpus.document_of, corpus.source_lengths).max()) + 1
        longest["final evaluation"], advice["final evaluation"] = (tokens, 0), "set test.enabled=false"
    for name, lengths in longest.items():
        for side, length, most in zip(("source", "target"), lengths, limits, strict=True):
            if length > most:
                raise ValueError(
                    f"{name}: a {side} has {length:,} tokens, but the attention takes at most {most:,}: raise "
                    f"model.attention.max_positions or max_length, or {advice[name]}"
                )


def fingerprints(data: DocumentDataModule, settings: Settings) -> dict[str, str]:
    """The fingerprints of the splits that the run reads: others may be configured but missing."""
    wanted = {"train", "valid"} | ({settings.test.split} if settings.test.enabled else set())
    return data.fingerprint(split for split in data.sources if split in wanted)
