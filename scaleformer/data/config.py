"""Settings of the data module: plain dataclasses, checked on construction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from scaleformer.data.synthetic.corpus import SyntheticConfig
from scaleformer.system.schema import from_mapping, shown
from scaleformer.vocabulary import tag_name

FORMATS = ("synthetic", "jsonl", "text", "hub")
BOUNDARIES = ("blank", "ids", "lines")
LEVELS = ("document", "segment")
# Settings that only one format reads.
_READ_BY = {"source_suffix": "text", "target_suffix": "text", "boundaries": "text", "holdout": "jsonl"}
T = TypeVar("T")


@dataclass(frozen=True)
class HubConfig:
    """A data set of the Hugging Face Hub, or any builder of `datasets.load_dataset` such as "json".

    name, subset        as for `load_dataset`; also data_files, for builders that read files
    source, target      columns; a dot reaches into a column of dictionaries ("translation.en"). A cell is a segment or
                        a list of segments
    document            column whose consecutive equal values form one document; "": each row is a document
    train, valid, test  the data set's names of the splits, "" for a split that it lacks
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
class CorpusConfig:
    """One of `data.corpora`. A setting that it leaves out has the value of `DataConfig`.

    weight  its share of the examples is this weight divided by the sum of all weights
    """

    weight: float | None = None
    tag: str | None = None
    format: str = ""
    path: str | None = None
    source_suffix: str = ""
    target_suffix: str = ""
    target_language: str | None = None
    boundaries: str = ""
    holdout: tuple[float, float] = (0.0, 0.0)
    streaming: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    hub: HubConfig = field(default_factory=HubConfig)


@dataclass(frozen=True)
class DataConfig:
    """Which documents are read, how they are cut into examples, and how examples form batches.

    format            synthetic | jsonl | text | hub
    path              file or folder; jsonl: one file or train/valid/test.jsonl[.gz]; text: train.en and train.es ...
    source_suffix, target_suffix  text: suffixes of the two files
    corpora           null, or several, {name: {path: ..., weight: ...}} (`CorpusConfig`): examples are drawn from them
                      by weight, and each corpus starts again when it ends
    temperature       for corpora without weights: weight = number of examples ** (1 / temperature)
    tag               null, or the tag before every source; "2es" is the piece `<2es>` of the vocabulary
    target_language   code of the target language (zh, de, por_Latn); None: the suffix of the target files or the name
                      of the column. It chooses the tokenizer of scores (metrics.tokenize=auto)
    boundaries        text: "blank" lines on both sides end a document; "ids": a file train.ids names each line's
                      document; "lines": every line is a document
    holdout           one jsonl file: shares of its documents that become valid and test
    level             "document", or "segment": each segment (each bead) is an example, as for a sentence-level model.
                      Segments with an empty side are left out (counted); multi_resolution and merge_segments then have
                      no effect
    max_tokens        longest example on either side, in tokens, `<sep>` and `</s>` included
    batch_tokens      padded source plus target tokens of a batch
    overlong          a single segment beyond max_tokens: "keep" (counted) or "error"
    multi_resolution  draw the cut sizes in every epoch, from one segment to max_tokens
    join_segments     null, or [fewest, most]: join that many random segments to a document, anew in every epoch
    drop_separators   share of the separators between the segments of a training example that are removed on one side,
                      drawn in every epoch, so that the model learns segments that do not match one to one
    merge_segments    share of the training examples whose segments are joined on both sides, in twos, threes, ... or
                      all, drawn in every epoch, so that the model learns segments of any grain
    mask_spans        share of the training pairs whose code, links, placeholders, versions and so on are masked where
                      both sides have them (`scaleformer.data.augment.masking`)
    annotate_terms    share of the training pairs whose source gives the translation of one to three of its words
                      (`scaleformer.data.augment.annotating`), for `translate terms=`; adds pieces to the vocabulary
    max_ratio         null, or leave out segment pairs whose token counts differ by more than this factor (counted)
    streaming         read and encode the training split in every epoch instead of keeping it encoded
    consecutive       keep the examples of a document in one row of consecutive batches, in order, so that attention can
                      carry its memory from one to the next; batches are then not sorted by length. For one process
    window            segments that are cut, joined and sorted into batches together when the training split is encoded
                      during training (streaming)
    num_workers       processes that prepare batches
    num_proc          processes that encode a corpus before training
    cache_dir         folder of Arrow files, tokenizers and encoded corpora, all by content hash
    seed              of cuts, joins and order
    """

    format: str = "synthetic"
    path: str | None = None
    corpora: dict[str, Any] | None = None
    temperature: float = 1.0
    tag: str | None = None
    source_suffix: str = "source"
    target_suffix: str = "target"
    target_language: str | None = None
    boundaries: str = "blank"
    holdout: tuple[float, float] = (0.05, 0.05)
    level: str = "document"
    max_tokens: int = 512
    batch_tokens: int = 8192
    overlong: str = "keep"
    multi_resolution: bool = False
    join_segments: tuple[int, int] | None = None
    drop_separators: float = 0.0
    merge_segments: float = 0.0
    mask_spans: float = 0.0
    annotate_terms: float = 0.0
    max_ratio: float | None = None
    streaming: bool = False
    consecutive: bool = False
    window: int = 50_000
    num_workers: int = 0
    num_proc: int = 1
    cache_dir: str = "data/cache"
    seed: int = 1
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    hub: HubConfig = field(default_factory=HubConfig)

    def __post_init__(self) -> None:
        _one_of("data.format", self.format, FORMATS)
        _one_of("data.boundaries", self.boundaries, BOUNDARIES)
        if self.path is not None and self.format in ("synthetic", "hub"):
            raise ValueError(
                f"data.path={shown(self.path)}: data.format={self.format} reads no path: add data=jsonl or data=text"
            )
        _one_of("data.overlong", self.overlong, ("keep", "error"))
        _one_of("data.level", self.level, LEVELS)
        for name, least in (("max_tokens", 3), ("batch_tokens", 6), ("window", 1), ("num_workers", 0), ("num_proc", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"data.{name}={getattr(self, name)}: wanted at least {least}")
        if self.seed < 0:
            raise ValueError(f"data.seed={self.seed}: wanted 0 or more")
        if len(self.holdout) != 2 or min(self.holdout) < 0 or sum(self.holdout) >= 1:
            raise ValueError(f"data.holdout={list(self.holdout)}: wanted the shares of [valid, test], together below 1")
        if not 0 <= self.drop_separators < 1:
            raise ValueError(f"data.drop_separators={self.drop_separators}: wanted a share from 0 to below 1")
        for name in ("merge_segments", "mask_spans", "annotate_terms"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.{name}={getattr(self, name)}: wanted a share from 0 to 1")
        if self.max_ratio is not None and self.max_ratio < 1:
            raise ValueError(f"data.max_ratio={self.max_ratio}: wanted null or a factor of at least 1")
        if self.join_segments is not None:
            join = self.join_segments
            if len(join) != 2 or not 1 <= join[0] <= join[1]:
                raise ValueError(f"data.join_segments={list(join)}: wanted null or [fewest, most], fewest at least 1")
            if self.multi_resolution:
                raise ValueError("data.join_segments and data.multi_resolution exclude each other: set one of them")
            if self.level == "segment":
                raise ValueError(
                    f"data.join_segments={list(join)}: data.level=segment cannot join segments: add "
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
        usual = {setting.name: setting.default for setting in fields(self)}
        for name, format in _READ_BY.items():
            if (value := getattr(self, name)) != usual[name] and self.format != format:
                given = shown(list(value) if isinstance(value, tuple) else value)
                raise ValueError(
                    f"data.{name}={given}: only data.format={format} reads it, not {self.format}: add data={format} or "
                    f"remove data.{name}"
                )
        if self.tag is not None:
            _tag("data.tag", self.tag)
        if not self.temperature > 0:
            raise ValueError(f"data.temperature={self.temperature}: wanted a number above 0")
        assert self.parts is not None  # computing it checks every corpus

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

        Raises ValueError for a corpus with wrong settings.
        """
        if not self.corpora:
            return {}
        if clashing := {name: getattr(self, name) for name in ("path", "tag") if getattr(self, name) is not None}:
            name, value = next(iter(clashing.items()))
            raise ValueError(f"data.{name}={shown(value)}: set it for each corpus of data.corpora instead")
        self._check_names()
        weighted = [name for name, entry in self.corpora.items() if _entry(name, entry).weight is not None]
        if weighted and self.temperature != 1:
            raise ValueError(
                f"data.temperature={self.temperature}: it is for corpora without weights, but "
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

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for name in map(str, self.corpora or ()):
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise ValueError(f"data.corpora: {shown(name)} is not a name: wanted letters, digits, _ . or -")
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise ValueError(f"data.corpora: {other} and {name} differ only in case: rename one")

    def _part(self, number: int, name: str) -> DataConfig:
        assert self.corpora is not None
        own, given = _entry(name, self.corpora[name]), dict.fromkeys(self.corpora[name])
        changed = {key: getattr(own, key) for key in given if key != "weight"}
        if changed.get("format", self.format) != self.format:  # do not inherit settings of the other format
            usual = DataConfig()
            changed = {key: getattr(usual, key) for key in (*_READ_BY, "hub", "synthetic")} | changed
        seed = int(np.random.SeedSequence((self.seed, number)).generate_state(1)[0])
        try:
            return replace(self, **{"corpora": None, "temperature": 1.0, "seed": seed, **changed})
        except ValueError as error:
            raise ValueError(f"data.corpora.{name}: {error}") from None


def _entry(name: str, entry: Any) -> CorpusConfig:
    where = f"data.corpora.{name}"
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where}={shown(entry)}: it is a group of settings: {where}.path, {where}.weight, ...")
    found = from_mapping(CorpusConfig, {str(key): value for key, value in entry.items()}, where)
    if found.weight is not None and not found.weight > 0:
        raise ValueError(f"{where}.weight={found.weight}: wanted a number above 0 (or remove the corpus)")
    return found


def _tag(name: str, tag: str) -> None:
    try:
        tag_name(tag)
    except ValueError as error:
        raise ValueError(f"{name}={error}") from None


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={shown(value)}: choose one of {', '.join(choices)}")
