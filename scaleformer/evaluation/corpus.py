"""Chooses the documents to evaluate: those of the command line, or those of the model's own run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaleformer.checkpoints.run_config import from_here, target_language, test_split
from scaleformer.data.config import DataConfig
from scaleformer.data.sources import JoinedSource, SplitSource, split_sources
from scaleformer.system.schema import from_mapping, shown


@dataclass(frozen=True)
class ChosenCorpus:
    """A split of a corpus.

    name      "" for the run's own corpus, else the name of the corpus in the names of results
    called    its name for all models, whether it is their own or not
    language  code of the target language, None if unknown (`target_language`)
    tag       put before its sources, None for none
    own_test  whether this is the test split of the run itself, whose results take the run's own names
    """

    source: SplitSource
    split: str
    name: str = ""
    language: str | None = None
    own_test: bool = True
    tag: str | None = None
    called: str = ""

    @property
    def label(self) -> str:
        """The split in names of results, preceded by the corpus unless it is the run's own."""
        return result_label(self.name, self.split)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {
            "name": self.name,
            "called": self.called,
            "where": self.source.where,
            "split": self.split,
            "sha256": self.source.fingerprint(),
        }
        return plain if self.tag is None else {**plain, "tag": self.tag}


def choose_corpora(run: Mapping[str, Any], settings: Mapping[str, Any] | None, split: str) -> list[ChosenCorpus]:
    """As `choose_corpus`, but with tags and several corpora: of these, all that have the split, each under its name."""
    run = _seen_from_here(run)
    config = _config(run, settings)
    if not config.parts:
        return [_chosen(run, settings, config, split)]
    found = [
        ChosenCorpus(sources[split], split, name, target_language(part), settings is None, part.tag, name)
        for name, part in config.parts.items()
        if split in (sources := split_sources(part))
    ]
    if not found:
        raise ValueError(f"data.corpora: none of {config.place} has a {split!r} split")
    return found


def choose_corpus(run: Mapping[str, Any], settings: Mapping[str, Any] | None, split: str) -> ChosenCorpus:
    """A split of the corpus that `settings` (the group `data`) describes, or else of the run's own corpus.

    A corpus with the same content and settings as the run's own is the run's own, wherever it is stored. Warns where
    splits are drawn from the training file in a different way than for the run.
    Raises ValueError without a corpus or split, for wrong settings, several corpora, and a tag.
    """
    run = _seen_from_here(run)
    config = _config(run, settings)
    if config.parts:
        raise ValueError(f"there are several corpora, {config.place}: choose one with data=jsonl data.path=DIR")
    if config.tag is not None:
        raise ValueError(f"data.tag={shown(config.tag)}: this command takes no tags; translate, evaluate and score do")
    return _chosen(run, settings, config, split)


def training_split(run: Mapping[str, Any], settings: Mapping[str, Any] | None) -> SplitSource | None:
    """The training split of a run, else of the corpus that `settings` describes; None where neither is found here.
    Data that would be downloaded are not: of the Hub only those count that the run itself was evaluated with."""
    run = _seen_from_here(run)
    candidates = [None] if "format" in (run.get("data") or {}) else []  # a public model has no corpus
    for chosen in candidates if settings is None else [*candidates, settings]:
        with suppress(ValueError, OSError):
            source = split_sources(_config(run, chosen)).get("train")
            parts = [part for _, part in source.parts] if isinstance(source, JoinedSource) else [source]
            if all(p is not None and not p.streaming and (p.hub is None or settings is None) for p in parts):
                return source
    return None


def _seen_from_here(run: Mapping[str, Any]) -> Mapping[str, Any]:
    data = run.get("data")
    return {**run, "data": from_here(data, run)} if isinstance(data, Mapping) else run


def _config(run: Mapping[str, Any], settings: Mapping[str, Any] | None) -> DataConfig:
    trained = run.get("data")
    chosen = trained if settings is None else settings
    # a public model's names none
    if not isinstance(chosen, Mapping) or (settings is None and not {"format", "path", "corpora"} & set(chosen)):
        raise ValueError("the checkpoint names no corpus: choose one with data=jsonl data.path=DIR")
    if isinstance(trained, Mapping) and chosen.get("target_language") is None:  # a model writes in one language
        chosen = {**chosen, "target_language": trained.get("target_language")}
    return from_mapping(DataConfig, {str(k): v for k, v in chosen.items()}, "data")


def _chosen(run: Mapping[str, Any], settings: Mapping[str, Any] | None, config: DataConfig, split: str) -> ChosenCorpus:
    trained, sources = run.get("data"), split_sources(config)
    if split not in sources:
        where = next(iter(sources.values())).where
        raise ValueError(f"{where}: no {split!r} split; present: {', '.join(sources)}")
    if isinstance(trained, Mapping) and split != "all" and config.path is not None and Path(config.path).is_file():
        shares = trained.get("holdout")
        same = trained.get("path") is not None and Path(str(trained["path"])).resolve() == Path(config.path).resolve()
        if same and shares is not None and list(shares) != list(config.holdout):
            warnings.warn(
                f"data.holdout={list(config.holdout)}: the model was trained on {config.path} with {list(shares)}, and "
                f"its training documents may be among those of {split}: set data.holdout={list(shares)}",
                stacklevel=2,
            )
    own = settings is None or _same(trained, sources[split])
    return ChosenCorpus(
        sources[split], split, "" if own else _name(config), target_language(config),
        own and split == test_split(run), config.tag, _name(config),
    )  # fmt: skip


def result_label(corpus: str, split: str) -> str:
    """CORPUS-SPLIT, or just SPLIT for the run's own corpus, whose name is ""."""
    return f"{corpus}-{split}" if corpus else split


def file_name(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^\w.-]", "_", name)


def _same(trained: Any, source: SplitSource) -> bool:
    """Whether this is a split of the corpus that a run was trained on; False where that one no longer exists."""
    if not isinstance(trained, Mapping):
        return False
    try:
        own = split_sources(from_mapping(DataConfig, {str(k): v for k, v in trained.items()}, "data"))
        return source.name in own and own[source.name].fingerprint() == source.fingerprint()
    except (ValueError, OSError):
        return False


def _name(config: DataConfig) -> str:
    if config.path is not None:
        path = Path(config.path).resolve()
        return file_name(path.name if path.is_dir() else path.name.removesuffix(".gz").removesuffix(".jsonl"))
    parts = (config.hub.name.rpartition("/")[2], config.hub.subset) if config.format == "hub" else (config.format,)
    return file_name("-".join(part for part in parts if part))
