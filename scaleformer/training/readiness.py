"""Whether the data are there, and fit the model, before the first step."""

from __future__ import annotations

import math

import numpy as np

from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.errors import MissingSplit
from scaleformer.model.transformer import Transformer
from scaleformer.training.settings import Settings


def prepare(data: DocumentDataModule, settings: Settings) -> None:
    """Make the data ready and see that every split that the run will want is there and can be read."""
    data.source("train")
    if settings.test.enabled:
        try:
            data.documents(settings.test.split)
        except MissingSplit as error:
            raise ValueError(
                f"{error} (wanted for the final evaluation: test.split names another, test.enabled=false does without)"
            ) from error
    try:
        fingerprints(data, settings)
    except MissingSplit as error:
        if settings.data.format != "hub":
            raise
        raise ValueError(
            f'{error} (data.hub.train and data.hub.valid name the splits; data.hub.valid="" where there is none)'
        ) from error
    if settings.callbacks.early_stopping.patience and "valid" not in data.sources:
        raise ValueError("callbacks.early_stopping.patience needs a valid split, and the data have none")
    data.prepare_data()


def check_lengths(model: Transformer, settings: Settings, data: DocumentDataModule) -> None:
    """Raises ValueError where a text, as far as they are known, is longer than the model can read or write."""
    limits = model.most_source_tokens, model.most_target_tokens
    if limits == (math.inf, math.inf):
        return
    longest = {name: (split.longest_source, split.longest_target) for name, split in data.report.splits.items()}
    advice = dict.fromkeys(longest, "cut at a smaller data.max_tokens")
    if settings.test.enabled:  # whole documents; a translation ends at the limit, which is counted
        corpus = data.encoded(settings.test.split)
        tokens = int(np.bincount(corpus.document_of, corpus.source_lengths).max()) + 1
        longest["final evaluation"], advice["final evaluation"] = (tokens, 0), "set test.enabled=false"
    for name, lengths in longest.items():
        for side, length, most in zip(("source", "target"), lengths, limits, strict=True):
            if length > most:
                raise ValueError(
                    f"{name}: a {side} has {length:,} tokens, and the attention takes {most:,} at most: raise its "
                    f"model.attention.max_positions or max_length, or {advice[name]}"
                )


def fingerprints(data: DocumentDataModule, settings: Settings) -> dict[str, str]:
    """Those of the splits that the run reads: others may be named that are not there."""
    wanted = {"train", "valid"} | ({settings.test.split} if settings.test.enabled else set())
    return data.fingerprint(split for split in data.sources if split in wanted)
