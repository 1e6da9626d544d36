"""Conversion of other formats to JSON Lines splits, every segment and document left out counted by reason."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import IO

from rich.table import Table

from scaleformer.data.config import BOUNDARIES, HubConfig
from scaleformer.data.errors import DataError
from scaleformer.data.readers.bitexts import BITEXTS, Bitext, read_bitext, separate
from scaleformer.data.readers.documents import Document, assign_splits, from_parts, read_jsonl, read_text_pair, read_tsv
from scaleformer.data.readers.hub import hub_documents
from scaleformer.data.readers.tables import Columns, has_names
from scaleformer.data.readers.testsets import read_test_set
from scaleformer.system.schema import shown

FORMATS = ("jsonl", "text", *BITEXTS, "hub", "sacrebleu")
SPLITS = ("train", "valid", "test")
# settings that some formats alone read
READ_BY = {
    **dict.fromkeys(("target", "ids"), ("text",)),
    "boundaries": ("text", *BITEXTS),
    **dict.fromkeys(("subset", "split", "data_files"), ("hub",)),
    **dict.fromkeys(("source_column", "target_column", "document_column"), ("hub", "csv", "tsv", "parquet")),
    **dict.fromkeys(("source_language", "target_language"), ("tmx",)),
}
# why a whole corpus may be one document, by the format or the boundaries of text
ONE_DOCUMENT = {
    "blank": "a document ends at a blank line; boundaries=lines makes every line one, boundaries=ids takes their names",
    "ids": "a document is the lines that one name stands beside",
    "lines": "a document is a line",
    "jsonl": "a document is a line",
    "tsv": "a document is the lines of one name",
    **dict.fromkeys(
        ("po", "tmx"), "a document is a file; input= takes a folder of them, too; boundaries=lines makes every unit one"
    ),
    "xliff": "a document is a <file> element; input= takes a folder, too; boundaries=lines makes every unit one",
    **dict.fromkeys(
        ("csv", "parquet"), "a document is a file, or the rows of one name of document_column; boundaries=lines: a row"
    ),
    "hub": "a document is a row, or the rows of one name of document_column",
    "sacrebleu": "the test set has no more",
}


@dataclass(frozen=True)
class PrepareConfig:
    """Settings of a conversion.

    format          jsonl | text | po | tmx | xliff | csv | tsv | parquet | hub | sacrebleu
    input           jsonl: a file; po, tmx, xliff, csv, tsv, parquet: a file, or a folder of them; text: the source
                    file; hub: the id of a data set of the Hugging Face Hub, or a builder of `datasets`; sacrebleu:
                    test set and languages, "wmt22:en-de"
    target, ids     text: the target file, and with boundaries=ids the file of document names
    boundaries      text: blank | ids | lines; po to parquet: lines makes every unit or row a document
    subset, split   hub: as `datasets.load_dataset` takes them; data_files too (for builders that read files)
    source_column, target_column, document_column
                    hub, csv, tsv, parquet: see source, target and document of `scaleformer.data.config.HubConfig`; in
                    files without document_column rows of texts are one document. A TSV without a line that names them
                    has the columns document, source, target
    source_language, target_language
                    tmx: languages ("en" is "en-GB", too); null = srclang, and the only other of a unit
    output          folder for train/valid/test.jsonl.gz and report.json; must not exist or be empty
    valid, test     shares of the documents that become valid and test, drawn by `seed`
    drop_empty      leave out segments that are empty (or blank) on a side
    drop_identical  leave out segments that are the same on both sides
    max_ratio       null, or leave out segments whose lengths in characters differ by more than this factor
    min_segments    leave out documents with fewer segments than that, after all else
    """

    format: str
    input: str
    output: str
    target: str | None = None
    ids: str | None = None
    boundaries: str = "blank"
    subset: str | None = None
    split: str = "train"
    data_files: dict[str, str] | None = None
    source_column: str = "source"
    target_column: str = "target"
    document_column: str = ""
    source_language: str | None = None
    target_language: str | None = None
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
        if self.format == "text" and self.target is None:
            raise ValueError("format=text needs target=FILE beside input=FILE")
        if self.format != "text" and self.boundaries == "ids":
            raise ValueError(f"boundaries=ids: format={self.format} does not read it, text does")
        if self.format == "text" and (self.boundaries == "ids") != (self.ids is not None):
            raise ValueError("boundaries=ids and ids=FILE belong together: give both or neither")
        for option in fields(self):
            readers, value = READ_BY.get(option.name, FORMATS), getattr(self, option.name)
            if self.format not in readers and value != option.default:
                others = f"{', '.join(readers)} {'do' if len(readers) > 1 else 'does'}"
                raise ValueError(f"{option.name}={shown(value)}: format={self.format} does not read it, {others}")
        if not (self.valid >= 0 and self.test >= 0 and self.valid + self.test <= 1):
            raise ValueError(f"valid={self.valid} test={self.test}: wanted shares, together at most 1")
        if self.max_ratio is not None and not self.max_ratio >= 1:
            raise ValueError(f"max_ratio={self.max_ratio}: wanted null or a factor of at least 1")
        if self.min_segments < 1:
            raise ValueError(f"min_segments={self.min_segments}: wanted at least 1")


@dataclass
class PrepareReport:
    """Counts of a conversion: what was written, by split, and what was left out, by reason."""

    documents: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    dropped_segments: Counter[str] = field(default_factory=Counter)
    dropped_documents: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Plain types, for JSON."""
        return {name: dict(counts) for name, counts in vars(self).items()}

    def table(self) -> Table:
        """A table for `rich.print`."""
        table = Table(title="Prepared")
        for column in ("", "documents", "segments"):
            table.add_column(column, justify="right" if column else "left")
        for split in SPLITS:
            table.add_row(split, f"{self.documents[split]:,}", f"{self.segments[split]:,}")
        for reason in sorted({*self.dropped_segments, *self.dropped_documents}):
            documents, segments = self.dropped_documents.get(reason), self.dropped_segments.get(reason)
            cells = ("" if count is None else f"{count:,}" for count in (documents, segments))
            table.add_row(f"left out: {reason}", *cells)
        return table


def prepare(config: PrepareConfig) -> PrepareReport:
    """Convert, and give the counts. The output folder appears whole or not at all.

    Raises DataError for bad input, an output folder that is not empty, and when nothing is left.
    """
    output = Path(config.output)
    report = PrepareReport()
    temporary = None
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise DataError(f"{output}: exists and is not an empty folder: choose another output")
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-"))
        _write(config, temporary, report)
        temporary.chmod(0o755)
        if output.exists():
            output.rmdir()
        os.rename(temporary, output)
    except OSError as error:
        raise DataError(f"{output}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return report


def _write(config: PrepareConfig, folder: Path, report: PrepareReport) -> None:
    for name in filter(None, (config.input, config.target, config.ids)):
        if Path(name).is_fifo():
            raise DataError(f"{name}: a pipe can be read once, and this is read twice: write it to a file first")
    counted = PrepareReport()
    count = sum(1 for _ in _cleaned(_read(config, counted), config, counted))
    if count == 0:
        raise DataError(f"{config.input}: no document is left ({_reasons(counted)})")
    try:
        splits = assign_splits(count, config.valid, config.test, config.seed)
    except DataError as error:
        reason = ONE_DOCUMENT[config.boundaries if config.format == "text" else config.format]
        raise DataError(f"{config.input}: {error}: {reason} (valid=0 and test=0 set none aside)") from None
    files: dict[str, IO[str]] = {}
    with ExitStack() as stack:
        for split, document in zip(splits, _cleaned(_read(config, report), config, report), strict=True):
            if split not in files:
                # Without a time stamp the same documents give the same bytes.
                packed = stack.enter_context(gzip.GzipFile(folder / f"{split}.jsonl.gz", "wb", mtime=0))
                files[split] = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline="\n"))
            files[split].write(document.to_json() + "\n")
            report.documents[split] += 1
            report.segments[split] += len(document.source)
    text = json.dumps({"settings": asdict(config), **report.to_dict()}, indent=2, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")


def _reasons(report: PrepareReport) -> str:
    counts = report.dropped_segments + report.dropped_documents
    return ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "the input is empty"


def _read(config: PrepareConfig, report: PrepareReport) -> Iterator[Document]:
    if config.format == "jsonl":
        return read_jsonl(config.input)
    names = config.source_column, config.target_column, config.document_column
    if config.format == "tsv" and not _names_columns(config, Columns(*names)):
        documents = read_tsv(config.input, report.dropped_segments)
        return chain.from_iterable(map(separate, documents)) if config.boundaries == "lines" else documents
    if config.format in BITEXTS:
        languages = config.source_language, config.target_language
        bitext = Bitext(config.format, config.input, Columns(*names), languages, config.boundaries == "lines")
        return read_bitext(bitext, report.dropped_segments)
    if config.format == "hub":
        return hub_documents(HubConfig(config.input, config.subset, config.data_files, *names), config.split)
    if config.format == "sacrebleu":
        return read_test_set(config.input)
    assert config.target is not None
    return read_text_pair(config.input, config.target, config.boundaries, config.ids)


def _names_columns(config: PrepareConfig, columns: Columns) -> bool:
    """Whether a TSV is one whose first line names the columns; without, they are document, source, target."""
    return Path(config.input).is_dir() or columns != Columns() or has_names(Path(config.input), columns)


def _cleaned(documents: Iterable[Document], config: PrepareConfig, report: PrepareReport) -> Iterator[Document]:
    for document in documents:
        pairs = []
        for source, target in document.parts():
            # what has no partner is meant to have none
            reason = _fault(" ".join(source), " ".join(target), config) if source and target else None
            if reason:
                report.dropped_segments[reason] += 1
            else:
                pairs.append((source, target))
        if len(pairs) < config.min_segments:
            report.dropped_documents[f"fewer than {config.min_segments} segments"] += 1
            report.dropped_segments["of documents left out"] += len(pairs)
        else:
            yield from_parts(document.id, pairs)


def _fault(source: str, target: str, config: PrepareConfig) -> str:
    """Why a segment is left out, "" if it is not."""
    if config.drop_empty and not (source.strip() and target.strip()):
        return "empty"
    if config.drop_identical and source == target:
        return "identical"
    short, long = sorted((len(source.strip()), len(target.strip())))
    if config.max_ratio is not None and long > config.max_ratio * short:
        return "length ratio"
    return ""
