"""What the configuration of a run, which its checkpoints carry, says of the run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.text.documents import Level

#: settings that are, or may be, paths of documents
PATHS = re.compile(r"data\.(corpora\..+\.)?(path|hub\.(name|data_files\.\w+))")


def trained_mode(run: Mapping[str, Any]) -> Level:
    """How a model trained with a configuration translates: "segment", each on its own, after data.level=segment;
    otherwise "document"."""
    data = run.get("data")
    return "segment" if isinstance(data, Mapping) and data.get("level") == "segment" else "document"


def test_split(run: Mapping[str, Any]) -> str:
    """The split that a run is evaluated on when it ends."""
    return (run.get("test") or {}).get("split") or "test"


def from_here(data: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """The group `data` as seen from here: a path of `run` (a configuration in a checkpoint) that does not exist here is
    the one in the folder where the run was started."""
    folder = run.get("folder")

    def seen(value: Any, own: Any, name: str) -> Any:
        if isinstance(value, Mapping):
            own = own if isinstance(own, Mapping) else {}
            return {key: seen(inner, own.get(key), f"{name}.{key}") for key, inner in value.items()}
        if not folder or value != own or not isinstance(value, str) or not PATHS.fullmatch(name):
            return value
        here = os.path.expanduser(value)
        there = os.path.join(folder, here)
        known = name.endswith(".path") or os.path.exists(there)  # others may be names of the Hub
        return there if known and not os.path.exists(here) else value

    return dict(seen(data, run.get("data"), "data"))


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
