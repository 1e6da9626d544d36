"""Settings of `scaleformer prepare`, and checks of their combinations."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from scaleformer.data.config import Boundaries
from scaleformer.data.quality.config import FilterConfig
from scaleformer.formats import recognition
from scaleformer.formats.recognition import BITEXTS
from scaleformer.formats.segments import Grain
from scaleformer.formats.suites import SUITES
from scaleformer.system.schema import Natural, OneOf, Positive, Range, Share, check_fields, check_type, shown
from scaleformer.text.languages import check_code

CORPORA = ("jsonl", "text", *BITEXTS, "raw", "hub", "sacrebleu", "translations")
FORMATS = (*CORPORA, *SUITES)
_TABLES = [name for name in BITEXTS if recognition.FORMATS[name].columns]
_MEMORIES = [name for name in BITEXTS if recognition.FORMATS[name].languages]
# settings that only some formats read
READ_BY = {
    "ids": ("text",),
    "target": ("text", "raw"),
    "boundaries": ("text", *BITEXTS),
    **dict.fromkeys(("subset", "data_files"), ("hub",)),
    "split": ("hub", "raw"),
    **dict.fromkeys(("source_column", "target_column", "document_column"), ("hub", *_TABLES)),
    **dict.fromkeys(("source_language", "target_language"), (*_MEMORIES, "raw", "contrapro")),
    **dict.fromkeys(("documents", "context"), ("contrapro",)),
    **dict.fromkeys(("valid", "test", "seed", "drop_empty", "drop_identical", "max_ratio", "min_segments"), CORPORA),
    **dict.fromkeys(("filters", "groups", "num_proc"), CORPORA),
    "checkpoint": ("raw", "translations"),
    "side": ("translations",),
    **dict.fromkeys(("source", "aligner", "unmatched", "min_confidence"), ("raw",)),
}


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of a conversion; `conf/commands/prepare.yaml` says what each means."""

    format: Annotated[str, OneOf(FORMATS)]
    input: str | None
    output: str
    target: str | None = None
    ids: str | None = None
    boundaries: Boundaries = "blank"
    subset: str | None = None
    split: str | None = None
    data_files: dict[str, str] | None = None
    source_column: str = "source"
    target_column: str = "target"
    document_column: str = ""
    source_language: str | None = None
    target_language: str | None = None
    documents: str | None = None
    context: Natural | None = 10
    source: str | None = None
    aligner: Literal["lexicon", "translation"] = "lexicon"
    checkpoint: str | None = None
    side: Literal["source", "target"] = "source"
    unmatched: Literal["keep", "drop"] = "keep"
    min_confidence: Share = 0.0
    filters: FilterConfig = field(default_factory=FilterConfig)
    groups: str | None = None
    num_proc: Positive = 1
    valid: Share = 0.05
    test: Share = 0.05
    seed: int = 1
    drop_empty: bool = True
    drop_identical: bool = False
    max_ratio: Annotated[float, Range(ge=1)] | None = None
    min_segments: Positive = 1

    def __post_init__(self) -> None:
        check_fields(self, "")
        if self.format != "raw" and self.input is None:
            raise ValueError(f"format={self.format} needs input=")
        if self.format == "text" and self.target is None:
            raise ValueError("format=text needs target=FILE as well as input=FILE")
        if self.format != "text" and self.boundaries == "ids":
            raise ValueError(f"boundaries=ids: only format=text reads it, not {self.format}")
        if self.format == "text" and (self.boundaries == "ids") != (self.ids is not None):
            raise ValueError("boundaries=ids and ids=FILE belong together: give both or neither")
        for option in fields(self):
            readers, value = READ_BY.get(option.name, FORMATS), getattr(self, option.name)
            usual = FilterConfig() if option.name == "filters" else option.default
            if self.format not in readers and value != usual:
                raise ValueError(
                    f"{option.name} is {shown(value)}: only format={'|'.join(readers)} reads it, not {self.format}"
                )
        if self.valid + self.test > 1:
            raise ValueError(f"valid={self.valid} test={self.test}: the shares must be at most 1 together")
        for name in ("valid", "test", "seed", "groups") if self.own_splits else ():
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise ValueError(f"{name}: the splits of the folder {self.input} stay as they are: leave it out")
        try:
            re.compile(self.groups or "")
        except re.error as error:
            raise ValueError(f"groups is {self.groups!r}: not a regular expression: {error}") from None
        if self.format == "raw":
            self._check_raw()
        if self.format == "contrapro" and self.documents is None:
            raise ValueError("format=contrapro needs documents=DIR, the folder that its setup_opensubs.sh creates")

    @property
    def own_splits(self) -> bool:
        """Whether the input is a folder with train.jsonl and so on, whose splits stay."""
        return self.format == "jsonl" and Path(self.input or "").is_dir()

    def _check_raw(self) -> None:
        if (self.input is None) != (self.source is not None and self.target is not None) or (
            self.input is not None and (self.source or self.target)
        ):
            raise ValueError("format=raw needs source=DIR and target=DIR, or input=FILE.tsv with two paths per line")
        for name in ("source_language", "target_language"):
            if not getattr(self, name):
                raise ValueError(f"format=raw needs {name}=, such as en")
            check_code(name, getattr(self, name))
        if self.source_language == self.target_language:
            raise ValueError(f"source_language and target_language are both {self.source_language}: give two")
        check_type("split", self.split, Grain | None)
        if (self.aligner == "translation") != (self.checkpoint is not None):
            raise ValueError("aligner=translation and checkpoint=RUN belong together: give both or neither")
