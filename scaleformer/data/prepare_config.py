"""Settings of `scaleformer prepare`, and checks of their combinations."""

from __future__ import annotations

from dataclasses import dataclass, fields

from scaleformer.data.align.filters import FILTERS
from scaleformer.data.config import BOUNDARIES
from scaleformer.formats import recognition
from scaleformer.formats.recognition import BITEXTS
from scaleformer.formats.segments import GRAINS
from scaleformer.formats.suites import SUITES
from scaleformer.system.schema import shown

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
    "checkpoint": ("raw", "translations"),
    **dict.fromkeys(("source", "aligner", "unmatched", "min_confidence", "filters"), ("raw",)),
}
CHOICES = {
    "format": FORMATS,
    "boundaries": BOUNDARIES,
    "unmatched": ("keep", "drop"),
    "aligner": ("lexicon", "translation"),
}


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of a conversion; `conf/commands/prepare.yaml` says what each means."""

    format: str
    input: str | None
    output: str
    target: str | None = None
    ids: str | None = None
    boundaries: str = "blank"
    subset: str | None = None
    split: str | None = None
    data_files: dict[str, str] | None = None
    source_column: str = "source"
    target_column: str = "target"
    document_column: str = ""
    source_language: str | None = None
    target_language: str | None = None
    documents: str | None = None
    context: int | None = 10
    source: str | None = None
    aligner: str = "lexicon"
    checkpoint: str | None = None
    unmatched: str = "keep"
    min_confidence: float = 0.0
    filters: tuple[str, ...] | None = None
    valid: float = 0.05
    test: float = 0.05
    seed: int = 1
    drop_empty: bool = True
    drop_identical: bool = False
    max_ratio: float | None = None
    min_segments: int = 1

    def __post_init__(self) -> None:
        for name, choices in {**CHOICES, **({"split": (None, *GRAINS)} if self.format == "raw" else {})}.items():
            if (value := getattr(self, name)) not in choices:
                wanted = ", ".join(choice for choice in choices if choice is not None)
                raise ValueError(f"{name}={shown(value)}: choose one of {wanted}")
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
            if self.format not in readers and value != option.default:
                raise ValueError(
                    f"{option.name}={shown(value)}: only format={'|'.join(readers)} reads it, not {self.format}"
                )
        if not (self.valid >= 0 and self.test >= 0 and self.valid + self.test <= 1):
            raise ValueError(f"valid={self.valid} test={self.test}: wanted shares, together at most 1")
        if self.max_ratio is not None and not self.max_ratio >= 1:
            raise ValueError(f"max_ratio={self.max_ratio}: wanted null or a factor of at least 1")
        if self.min_segments < 1:
            raise ValueError(f"min_segments={self.min_segments}: wanted at least 1")
        if self.format == "raw":
            self._check_raw()
        if self.format == "contrapro" and self.documents is None:
            raise ValueError("format=contrapro needs documents=DIR, the folder that its setup_opensubs.sh creates")
        if self.context is not None and self.context < 0:
            raise ValueError(f"context={self.context}: wanted 0 or more segments, or null for all")

    def _check_raw(self) -> None:
        if (self.input is None) != (self.source is not None and self.target is not None) or (
            self.input is not None and (self.source or self.target)
        ):
            raise ValueError("format=raw needs source=DIR and target=DIR, or input=FILE.tsv with two paths per line")
        for name in ("source_language", "target_language"):
            if not getattr(self, name):
                raise ValueError(f"format=raw needs {name}=, such as en")
        if unknown := [name for name in self.filters or () if name not in FILTERS]:
            raise ValueError(f"filters={shown(unknown[0])}: choose from {', '.join(FILTERS)}")
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence={self.min_confidence}: wanted between 0 and 1")
        if (self.aligner == "translation") != (self.checkpoint is not None):
            raise ValueError("aligner=translation and checkpoint=RUN belong together: give both or neither")
