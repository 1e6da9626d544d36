"""Settings of the data module: plain dataclasses, checked when made."""

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
# Settings that one format alone reads.
_READ_BY = {"source_suffix": "text", "target_suffix": "text", "boundaries": "text", "holdout": "jsonl"}
T = TypeVar("T")


@dataclass(frozen=True)
class HubConfig:
    """A data set of the Hugging Face Hub (or any builder of `datasets.load_dataset`, such as "json").

    name, subset        as `load_dataset` takes them; data_files too (for builders that read files)
    source, target      columns; a dot reaches into a column of dictionaries ("translation.en"). Cells are lists of
                        segments, or one segment each
    document            "" (a row is a document) or the column whose equal neighbours make one document
    train, valid, test  the data set's own names of the splits, "" when it has none
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
    """One of `data.corpora`; all but its weight as in `DataConfig`, where what it does not set is set for all.

    weight  its share of the examples, to be divided by the sum of all weights
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
    """What is read, how documents are cut into examples and examples are put into batches.

    format            synthetic | jsonl | text | hub
    path              file or folder; jsonl: one file or train/valid/test.jsonl[.gz]; text: train.en and train.es ...
    source_suffix, target_suffix  text: endings of the two files
    corpora           null, or several, {name: {path: ..., weight: ...}} (`CorpusConfig`): examples are drawn from them
                      by their weights, and each begins anew where it ends
    temperature       of weights that nobody gives: those are the numbers of examples ** (1 / temperature)
    tag               null, or the tag that stands before every source; "2es" is the piece `<2es>` of the vocabulary
    target_language   code of the target language (zh, de, por_Latn), None = by the ending of the text's target files or
                      the name of the column; it chooses the tokenizer of scores (metrics.tokenize=auto)
    boundaries        text: "blank" lines on both sides end a document; "ids": a file train.ids names each line's
                      document; "lines": every line is a document
    holdout           one jsonl file: shares of its documents that become valid and test
    level             "document", or "segment": each segment (each bead) is an example of its own, as a sentence-level
                      model is trained; those with an empty side are left out (counted), and the cuts have no sizes to
                      be drawn (multi_resolution, merge_segments)
    max_tokens        longest example, on either side, in tokens with `<sep>` and `</s>`
    batch_tokens      padded source and target tokens of a batch together
    overlong          a single segment beyond max_tokens: "keep" (counted) or "error"
    multi_resolution  draw the cut sizes anew in every epoch, from one segment to max_tokens
    join_segments     null, or [fewest, most]: random segments joined to documents of that many, anew in every epoch
    drop_separators   the share of the separators between the segments of a training example that one side, drawn anew
                      in every epoch, is left without, so that the model learns segments that do not match one to one
    merge_segments    the share of the training examples whose segments are joined on both sides, by twos, threes, ...
                      or all, drawn anew in every epoch, so that the model learns segments of any grain
    mask_spans        the share of the training pairs whose code, links, placeholders, versions and so on, where both
                      sides have them, are masked (`scaleformer.data.masking`)
    annotate_terms    the share of the training pairs whose source says how one to three of its words are translated
                      (`scaleformer.data.annotating`), for `translate terms=`; the vocabulary then has pieces for it
    word_dropout      the share of the source words that training examples are left without, and
    mask_source       the share of their source tokens that become `<unk>`, both drawn anew in every epoch
                      (`scaleformer.data.noise`)
    max_ratio         null, or leave out segment pairs whose token counts differ by more than this factor (counted)
    streaming         read and encode the training split anew in every epoch instead of keeping it encoded
    window            segments that are cut, joined and sorted into batches together when the training split is encoded
                      on the way (streaming, subword sampling)
    num_workers       processes that make batches ready
    num_proc          processes that encode a corpus when it is prepared
    cache_dir         Arrow files, tokenizers and encoded corpora, all by content hash
    seed              of cuts, joins, order and subword sampling
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
    word_dropout: float = 0.0
    mask_source: float = 0.0
    max_ratio: float | None = None
    streaming: bool = False
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
                f"data.path={shown(self.path)}: data.format={self.format} reads none: add data=jsonl or data=text"
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
        for name in ("drop_separators", "word_dropout", "mask_source"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"data.{name}={getattr(self, name)}: wanted a share from 0 to below 1")
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
                    f"data.level=segment joins no segments, and data.join_segments={list(join)} asks for it: add "
                    "data.join_segments=null"
                )
        usual = {setting.name: setting.default for setting in fields(self)}
        for name, format in _READ_BY.items():
            if (value := getattr(self, name)) != usual[name] and self.format != format:
                given = shown(list(value) if isinstance(value, tuple) else value)
                raise ValueError(
                    f"data.{name}={given}: data.format={self.format} does not read it, only {format}: add "
                    f"data={format}, or leave it out"
                )
        if self.tag is not None:
            _tag("data.tag", self.tag)
        if not self.temperature > 0:
            raise ValueError(f"data.temperature={self.temperature}: wanted a number above 0")
        assert self.parts is not None  # which looks at every corpus

    @property
    def place(self) -> str:
        """Where the documents are, for messages."""
        return ", ".join(self.corpora or ()) or self.path or self.hub.name or self.format

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of the tags, each once."""
        given = [self.tag] if not self.parts else [part.tag for part in self.parts.values()]
        return tuple(dict.fromkeys(tag_name(tag) for tag in given if tag is not None))

    @cached_property
    def parts(self) -> dict[str, DataConfig]:
        """Each of `corpora` as if it were the only one, with a seed of its own; {} where there is one corpus.

        Raises ValueError for what is wrong with it.
        """
        if not self.corpora:
            return {}
        if clashing := {name: getattr(self, name) for name in ("path", "tag") if getattr(self, name) is not None}:
            name, value = next(iter(clashing.items()))
            raise ValueError(f"data.{name}={shown(value)}: every corpus of data.corpora has its own: leave it out here")
        self._check_names()
        weighted = [name for name, entry in self.corpora.items() if _entry(name, entry).weight is not None]
        if weighted and self.temperature != 1:
            raise ValueError(
                f"data.temperature={self.temperature}: it makes weights where no corpus has one, and "
                f"data.corpora.{weighted[0]}.weight is given"
            )
        if weighted and len(weighted) < len(self.corpora):
            other = next(name for name in self.corpora if name not in weighted)
            raise ValueError(
                f"data.corpora.{other}.weight is missing: {weighted[0]} has a weight, and either all have one, or none"
            )
        parts = {name: self._part(number, name) for number, name in enumerate(self.corpora)}
        if not weighted and (streamed := next((name for name, part in parts.items() if part.streaming), None)):
            raise ValueError(
                f"data.corpora.{streamed}.weight is missing: it is streamed, and how large it is is not known before"
            )
        return parts

    @property
    def weights(self) -> dict[str, float] | None:
        """The weight of each of `corpora`; None where nobody gives them."""
        found = {name: _entry(name, entry).weight for name, entry in (self.corpora or {}).items()}
        given = {name: weight for name, weight in found.items() if weight is not None}
        return given or None

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for name in map(str, self.corpora or ()):
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise ValueError(f"data.corpora: {shown(name)} is no name: wanted letters, digits, _ . or -")
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise ValueError(f"data.corpora: {other} and {name} are one name where case is ignored: rename one")

    def _part(self, number: int, name: str) -> DataConfig:
        assert self.corpora is not None
        own, given = _entry(name, self.corpora[name]), dict.fromkeys(self.corpora[name])
        changed = {key: getattr(own, key) for key in given if key != "weight"}
        if changed.get("format", self.format) != self.format:  # what the other format alone reads
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
        raise ValueError(f"{where}.weight={found.weight}: wanted a number above 0, or leave the corpus out")
    return found


def _tag(name: str, tag: str) -> None:
    try:
        tag_name(tag)
    except ValueError as error:
        raise ValueError(f"{name}={error}") from None


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={shown(value)}: choose one of {', '.join(choices)}")
