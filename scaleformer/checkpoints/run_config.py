"""What the configuration of a run, which its checkpoints carry, says of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.text.documents import Level


def trained_mode(run: Mapping[str, Any]) -> Level:
    """How a model trained with a configuration translates: "segment", each on its own, after data.level=segment;
    otherwise "document"."""
    data = run.get("data")
    return "segment" if isinstance(data, Mapping) and data.get("level") == "segment" else "document"


def test_split(run: Mapping[str, Any]) -> str:
    """The split that a run is evaluated on when it ends."""
    return (run.get("test") or {}).get("split") or "test"


def all_tagged(run: Mapping[str, Any]) -> bool:
    """Whether every corpus of a run has a tag."""
    data = run.get("data")
    if not isinstance(data, Mapping):
        return False
    corpora = (data.get("corpora") or {"": data}).values()
    return all(isinstance(corpus, Mapping) and corpus.get("tag") is not None for corpus in corpora)


def target_language(config: DataConfig) -> str | None:
    """The code of the target language, from the settings, file extensions or column names; None if unknown."""
    if config.target_language is not None:
        return config.target_language
    if config.format == "text":
        return config.target_suffix
    return config.hub.target.rpartition(".")[2] if config.format == "hub" else None
