"""Settings of the data module: plain dataclasses, checked on construction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np

from scaleformer.data.synthetic.corpus import SyntheticConfig
from scaleformer.system.errors import DataError
from scaleformer.system.schema import Natural, NonEmpty, Positive, Range, Share, check_fields, from_mapping, shown
from scaleformer.text.documents import Level
from scaleformer.vocabulary import tag_name

Format = Literal["synthetic", "jsonl", "text", "hub"]
Boundaries = Literal["blank", "ids", "lines"]
# Settings that only one format reads.
_READ_BY = {"source_suffix": "text", "target_suffix": "text", "boundaries": "text", "holdout": "jsonl"}


class MissingSplit(DataError):
    """The split does not exist, or has no documents or references."""


@dataclass(frozen=True)
class HubConfig:
    """A data set of the Hugging Face Hub, or any builder of `datasets.load_dataset` such as "json".

    `conf/data/hub.yaml` says what each setting means.
    """

    name: str = ""
    subset: str | None = None
    data_files: dict[str, str] | None = None
    source: str = "source"
    target: str = "target"
    document: str = ""
    train: str = "train"
    valid: str = "validation"
    test: str = "test"


@dataclass(frozen=True)
class SourceConfig:
    """Where documents are and how they are read: what each of `data.corpora` may set for itself."""

    format: Format = "synthetic"
    path: str | None = None
    tag: str | None = None
    source_suffix: str = "source"
    target_suffix: str = "target"
    target_language: str | None = None
    boundaries: Boundaries = "blank"
    holdout: tuple[Share, Share] = (0.05, 0.05)
    streaming: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    hub: HubConfig = field(default_factory=HubConfig)


@dataclass(frozen=True)
class CorpusConfig(SourceConfig):
    """One of `data.corpora`. A setting that it leaves out has the value of `DataConfig`; its share of the examples is
    `weight` divided by the sum of all weights."""

    weight: Annotated[float, Range(gt=0)] | None = None


@dataclass(frozen=True)
class StageConfig:
    """One of `data.stages`. A setting that it leaves out has the value of `DataConfig`.

    until    its last step, or the share of the run's steps (or time) after which it ends; the last stage has none
    corpora  weights by name; corpora without one are not drawn
    """

    until: Positive | Annotated[float, Range(gt=0, lt=1)] | None = None
    level: Level | None = None
    max_tokens: Annotated[int, Range(ge=3)] | None = None
    multi_resolution: bool | None = None
    corpora: dict[str, Annotated[float, Range(gt=0)]] | None = None


@dataclass(frozen=True)
class DataConfig(SourceConfig):
    """The group `data`: which documents are read, how they are cut into examples, and how these form batches.

    `conf/data/base.yaml` says what each setting means. Each bead of segments that do not match one to one counts as a
    segment.
    """

    corpora: dict[str, Any] | None = None
    temperature: Annotated[float, Range(gt=0)] = 1.0
    stages: NonEmpty[dict[str, Any]] | None = None
    level: Level = "document"
    max_tokens: Annotated[int, Range(ge=3)] = 512
    batch_tokens: Annotated[int, Range(ge=6)] = 8192
    overlong: Literal["keep", "error"] = "keep"
    multi_resolution: bool = False
    join_segments: tuple[Positive, Positive] | None = None
    mask_spans: Share = 0.0
    max_ratio: Annotated[float, Range(ge=1)] | None = None
    consecutive: bool = False
    window: Positive = 50_000
    num_workers: Natural = 0
    num_proc: Positive = 1
    cache_dir: str = "data/cache"
    seed: Natural = 1

    def __post_init__(self) -> None:
        check_fields(self, "data")
        if self.path is not None and self.format in ("synthetic", "hub"):
            raise ValueError(
                f"data.path is {shown(self.path)}: data.format={self.format} reads no path: add data=jsonl or data=text"
            )
        if sum(self.holdout) >= 1:
            raise ValueError(f"data.holdout is {shown(self.holdout)}: the shares of valid and test must be below 1")
        if self.join_segments is not None:
            join = shown(self.join_segments)
            if self.join_segments[0] > self.join_segments[1]:
                raise ValueError(f"data.join_segments is {join}: it must be [fewest, most]")
            if self.multi_resolution:
                raise ValueError("data.join_segments and data.multi_resolution exclude each other: set one of them")
            if self.level == "segment":
                raise ValueError(
                    f"data.join_segments is {join}: data.level=segment cannot join segments: add "
                    "data.join_segments=null"
                )
        if self.consecutive:
            usual_value = {"level": "document", "join_segments": "null", "corpora": "null", "streaming": "false"}
            for name, value in usual_value.items():
                if getattr(self, name) not in (value, None, False):
                    raise ValueError(
                        f"data.consecutive=true does not work with data.{name}: add data.{name}={value} or "
                        "data.consecutive=false"
                    )
        if self.temperature != 1 and not self.corpora:
            raise ValueError(
                f"data.temperature is {self.temperature}: it weighs data.corpora: set these, or leave it out"
            )
        usual = {setting.name: setting.default for setting in fields(self)}
        for name, format in _READ_BY.items():
            if (value := getattr(self, name)) != usual[name] and self.format != format:
                raise ValueError(
                    f"data.{name} is {shown(value)}: only data.format={format} reads it, not {self.format}: add "
                    f"data={format} or remove data.{name}"
                )
        if self.tag is not None:
            try:
                tag_name(self.tag)
            except ValueError as error:
                raise ValueError(f"data.tag is {error}") from None
        assert self.parts is not None  # computing them checks every corpus and stage
        assert self.staged is not None

    @property
    def place(self) -> str:
        """Where the documents are, for messages."""
        return ", ".join(self.corpora or ()) or self.path or self.hub.name or self.format

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of all tags, without duplicates."""
        given = [self.tag] if not self.parts else [part.tag for part in self.parts.values()]
        return tuple(dict.fromkeys(tag_name(tag) for tag in given if tag is not None))

    @cached_property
    def parts(self) -> dict[str, DataConfig]:
        """The configuration of each of `corpora` as if it were the only one, with its own seed; {} for a single corpus.
        Raises ValueError for a corpus with wrong settings."""
        if not self.corpora:
            return {}
        if clashing := {name: getattr(self, name) for name in ("path", "tag") if getattr(self, name) is not None}:
            name, value = next(iter(clashing.items()))
            raise ValueError(f"data.{name} is {shown(value)}: set it for each corpus of data.corpora instead")
        seen: dict[str, str] = {}
        for name in map(str, self.corpora):
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise ValueError(f"data.corpora: {shown(name)} is no name: it must be of letters, digits, _ . and -")
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise ValueError(f"data.corpora: {other} and {name} differ only in case: rename one")
        weighted = [name for name, entry in self.corpora.items() if _entry(name, entry).weight is not None]
        if weighted and self.temperature != 1:
            raise ValueError(
                f"data.temperature is {self.temperature}: it is for corpora without weights, but "
                f"data.corpora.{weighted[0]}.weight is set: remove one of them"
            )
        if weighted and len(weighted) < len(self.corpora):
            other = next(name for name in self.corpora if name not in weighted)
            raise ValueError(
                f"data.corpora.{other}.weight is missing: {weighted[0]} has a weight; give all corpora one, or none"
            )
        parts = {name: self._part(number, name) for number, name in enumerate(self.corpora)}
        if not weighted and (streamed := next((name for name, part in parts.items() if part.streaming), None)):
            raise ValueError(
                f"data.corpora.{streamed}.weight is missing: a streamed corpus needs one, since its size is unknown"
            )
        return parts

    @property
    def weights(self) -> dict[str, float] | None:
        """The weight of each of `corpora`; None if no weights are set."""
        found = {name: _entry(name, entry).weight for name, entry in (self.corpora or {}).items()}
        given = {name: weight for name, weight in found.items() if weight is not None}
        return given or None

    @cached_property
    def stage_settings(self) -> tuple[StageConfig, ...]:
        """The stages; () without. Raises ValueError for wrong settings."""
        found = [from_mapping(StageConfig, stage, f"data.stages[{n}]") for n, stage in enumerate(self.stages or ())]
        for n, stage in enumerate(found):
            last = n == len(found) - 1
            if (stage.until is None) != last:
                what = "the last stage goes on to the end: leave it out" if last else "it must say where the stage ends"
                raise ValueError(f"data.stages[{n}].until is {shown(stage.until)}: {what}")
        for name in ("level", "max_tokens"):
            if found and (value := getattr(found[-1], name)) not in (None, usual := getattr(self, name)):
                raise ValueError(
                    f"data.stages[{len(found) - 1}].{name} is {shown(value)}, but data.{name}={usual}: by this the run "
                    f"validates and translates, so the last stage has to agree: set data.{name}={value}"
                )
        return tuple(found)

    @cached_property
    def staged(self) -> tuple[DataConfig, ...]:
        """The configuration of each of `stages`; () without. Raises ValueError for a stage with wrong settings."""
        if self.stage_settings and (self.streaming or any(part.streaming for part in self.parts.values())):
            raise ValueError(
                "data.stages does not work with streaming=true, which reads a corpus once through: set "
                "data.stages=null or data.streaming=false"
            )
        return tuple(self._stage(f"data.stages[{n}]", stage) for n, stage in enumerate(self.stage_settings))

    def _stage(self, where: str, stage: StageConfig) -> DataConfig:
        given = {name: getattr(stage, name) for name in ("level", "max_tokens", "multi_resolution")}
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if stage.corpora is not None:
            there = self.corpora or {}
            if not stage.corpora or not stage.corpora.keys() <= there.keys():
                raise ValueError(
                    f"{where}.corpora is {shown(stage.corpora)}: it must give weights to some of data.corpora, which "
                    f"are {', '.join(there) or 'none'}"
                )
            weighted = {name: {**there[name], "weight": weight} for name, weight in stage.corpora.items()}
            changed |= {"corpora": weighted, "temperature": 1.0}
        try:
            return replace(self, stages=None, **changed)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    def _part(self, number: int, name: str) -> DataConfig:
        assert self.corpora is not None
        own, given = _entry(name, self.corpora[name]), dict.fromkeys(self.corpora[name])
        changed = {key: getattr(own, key) for key in given if key != "weight"}
        if changed.get("format", self.format) != self.format:  # do not inherit settings of the other format
            usual = DataConfig()
            changed = {key: getattr(usual, key) for key in (*_READ_BY, "hub", "synthetic")} | changed
        seed = int(np.random.SeedSequence((self.seed, number)).generate_state(1)[0])
        try:
            return replace(self, **{"corpora": None, "stages": None, "temperature": 1.0, "seed": seed, **changed})
        except ValueError as error:
            raise ValueError(f"data.corpora.{name}: {error}") from None


def _entry(name: str, entry: Any) -> CorpusConfig:
    where = f"data.corpora.{name}"
    if not isinstance(entry, Mapping):
        raise ValueError(
            f"{where} is {shown(entry)}: it must be a group of settings: {where}.path, {where}.weight, ..."
        )
    return from_mapping(CorpusConfig, {str(key): value for key, value in entry.items()}, where)
