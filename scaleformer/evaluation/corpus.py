"""Which documents a command evaluates: those that it is told of, or those of the model's own run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.data.sources import SplitSource, split_sources
from scaleformer.system.schema import from_mapping


def choose_corpus(run: Mapping[str, Any], settings: Mapping[str, Any] | None, split: str) -> SplitSource:
    """A split of the corpus that `settings` (the group `data`) describes, or without these the configuration of a run.

    A warning tells of splits that are drawn otherwise than for the run from the very file that it was trained on.
    Raises ValueError: neither names a corpus, no such split, settings that are wrong.
    """
    chosen = run.get("data") if settings is None else settings
    if not isinstance(chosen, Mapping):
        raise ValueError("the checkpoint names no corpus: say which with data=jsonl data.path=DIR")
    config = from_mapping(DataConfig, {str(k): v for k, v in chosen.items()}, "data")
    sources = split_sources(config)
    if split not in sources:
        where = next(iter(sources.values())).where
        raise ValueError(f"{where}: no {split!r} split; present: {', '.join(sources)}")
    trained = run.get("data")
    if isinstance(trained, Mapping) and split != "all" and config.path is not None and Path(config.path).is_file():
        shares = trained.get("holdout")
        same = trained.get("path") is not None and Path(str(trained["path"])).resolve() == Path(config.path).resolve()
        if same and shares is not None and list(shares) != list(config.holdout):
            warnings.warn(
                f"data.holdout={list(config.holdout)}: the model was trained on {config.path} with {list(shares)}, and "
                f"its training documents may be among those of {split}: set data.holdout={list(shares)}",
                stacklevel=2,
            )
    return sources[split]
