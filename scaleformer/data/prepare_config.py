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
RAW_CHOICES = {"split": GRAINS, "unmatched": ("keep", "drop"), "aligner": ("lexicon", "translation")}


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of a conversion.

    format          jsonl | text | po | tmx | xliff | csv | tsv | parquet | raw | hub | sacrebleu | translations (JSON
                    Lines of `translate`, reversed: the translation becomes the source). Contrastive test suites for
                    `scaleformer context`: contrapro | bawden | voita (`scaleformer.formats.suites`)
    input           jsonl: a file; po, tmx, xliff, csv, tsv, parquet: a file, or a folder of them; text: the source
                    file; hub: the id of a data set of the Hugging Face Hub, or a builder of `datasets`; sacrebleu:
                    test set and languages, "wmt22:en-de"; raw: a file with two paths per line, or null; suites: one of
                    their files, for bawden and voita also the folder
    source          raw without input: the folder of the source documents
    target, ids     text: the target file, and with boundaries=ids the file of document names; raw: the folder of the
                    target documents
    boundaries      text: blank | ids | lines; po to parquet: lines makes every unit or row a document
    subset, split   hub: as for `datasets.load_dataset`, split=null is "train"; also data_files, for builders that read
                    files. raw: split is the grain of segments, sentence (null) | paragraph | none (by line)
    source_column, target_column, document_column
                    hub, csv, tsv, parquet: see source, target and document of `scaleformer.data.config.HubConfig`. A
                    file without document_column is one document. A TSV without a header line has the columns document,
                    source, target
    source_language, target_language
                    tmx: languages ("en" also matches "en-GB"); null = srclang, and the only other language of a unit;
                    raw: required; contrapro: the suffixes of the documents, null = en, de
    documents       contrapro: the folder of the documents that the examples come from
    context         contrapro: segments to keep before each example; null = all
    aligner         raw: lexicon (learned from the corpus) | translation (by the model `checkpoint`)
    checkpoint      raw: see aligner; translations: the model that made them, whose hash is added to the report
    unmatched       raw: keep text without a partner, as beads with an empty side, or drop it
    min_confidence  raw: beads with a lower confidence (0 to 1) count as text without a partner
    filters         raw: of `scaleformer.data.align.filters.FILTERS`; null = all
    output          folder for train/valid/test.jsonl.gz and report.json; must not exist or be empty
    valid, test     shares of the documents that become valid and test, drawn by `seed`
    drop_empty      leave out segments that are empty (or blank) on a side
    drop_identical  leave out segments that are the same on both sides
    max_ratio       null, or leave out segments whose lengths in characters differ by more than this factor
    min_segments    leave out documents that end up with fewer segments
    """

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
        if self.format not in FORMATS:
            raise ValueError(f"format={shown(self.format)}: choose one of {', '.join(FORMATS)}")
        if self.boundaries not in BOUNDARIES:
            raise ValueError(f"boundaries={shown(self.boundaries)}: choose one of {', '.join(BOUNDARIES)}")
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
        for name, choices in RAW_CHOICES.items():
            value = getattr(self, name)
            if value not in choices and (name, value) != ("split", None):
                raise ValueError(f"{name}={shown(value)}: choose one of {', '.join(choices)}")
        if unknown := [name for name in self.filters or () if name not in FILTERS]:
            raise ValueError(f"filters={shown(unknown[0])}: choose from {', '.join(FILTERS)}")
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence={self.min_confidence}: wanted between 0 and 1")
        if (self.aligner == "translation") != (self.checkpoint is not None):
            raise ValueError("aligner=translation and checkpoint=RUN belong together: give both or neither")
