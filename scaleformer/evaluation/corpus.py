"""Which documents a command evaluates: those that it is told of, or those of the model's own run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaleformer.data.config import DataConfig, from_mapping
from scaleformer.data.sources import SplitSource, split_sources


def choose_corpus(run: Mapping[str, Any], settings: Mapping[str, Any] | None, split: str) -> SplitSource:
    """A split of the corpus that `settings` (the group `data`) describes, or without these the configuration of a run.

    Raises ValueError: neither names a corpus, no such split, settings that are wrong.
    """
    chosen = run.get("data") if settings is None else settings
    if not isinstance(chosen, Mapping):
        raise ValueError("the checkpoint names no corpus: say which with data=jsonl data.path=DIR")
    sources = split_sources(from_mapping(DataConfig, {str(k): v for k, v in chosen.items()}, "data"))
    if split not in sources:
        where = next(iter(sources.values())).where
        raise ValueError(f"{where}: no {split!r} split; present: {', '.join(sources)}")
    return sources[split]
