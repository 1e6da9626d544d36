"""Small corpora for tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from scaleformer.data.config import DataConfig
from scaleformer.data.cutting import Cutting
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.data.sampler import Recipe, batch_parts, plan_epoch
from scaleformer.data.synthetic.corpus import SyntheticConfig
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.vocabulary import SEP

SYNTHETIC = SyntheticConfig(train=40, valid=6, test=5)
CUTTINGS = {
    "longest": Cutting(50),
    "multi-resolution": Cutting(50, multi_resolution=True),
    "joined": Cutting(50, join_segments=(2, 5)),
    "many over-long": Cutting(10, multi_resolution=True),
}


def epoch_parts(corpus: EncodedCorpus, recipe: Recipe, epoch: int, done: int = 0) -> list[Any]:
    """The batches of an epoch after the first `done`."""
    plan, batches = plan_epoch(corpus, recipe, epoch)
    return list(batch_parts(corpus, plan, batches[done:], recipe.consecutive))


def encoded(lengths: list[list[tuple[int, int]]]) -> EncodedCorpus:
    """A corpus from (source, target) token counts of each segment of each document, `<sep>` included.

    Every token but `<sep>` is a number of its own, so that one that is lost or doubled shows.
    """
    sides = []
    for side in (0, 1):
        counts = [pair[side] for document in lengths for pair in document]
        offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        tokens = np.arange(10, 10 + offsets[-1], dtype=np.int32)
        tokens[offsets[1:] - 1] = SEP
        sides.append((tokens, offsets))
    documents = np.concatenate(([0], np.cumsum([len(d) for d in lengths], dtype=np.int64)))
    (source, source_offsets), (target, target_offsets) = sides
    ids = [f"d{i}" for i in range(len(lengths))]
    single = np.ones(documents[-1], dtype=np.bool_)
    return EncodedCorpus(source, target, source_offsets, target_offsets, documents, ids, single)


def random_corpus(seed: int, documents: int = 30, segments: int = 12, tokens: int = 20) -> EncodedCorpus:
    """Documents of 1 to `segments` segments of 1 to `tokens` tokens a side."""
    rng = random.Random(seed)
    return encoded(
        [
            [(rng.randint(1, tokens), rng.randint(1, tokens)) for _ in range(rng.randint(1, segments))]
            for _ in range(documents)
        ]
    )


def module(cache: Path, tokenizer: dict[str, Any] | None = None, **options: Any) -> DocumentDataModule:
    """Of the embedded corpus, small, with these settings changed."""
    settings = {"cache_dir": str(cache), "max_tokens": 60, "batch_tokens": 600, "synthetic": SYNTHETIC, **options}
    return DocumentDataModule(DataConfig(**settings), TokenizerConfig(**{"vocab_size": 450, **(tokenizer or {})}))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)
