"""Converts other formats to JSON Lines splits, and counts omitted segments and documents by reason."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from rich.table import Table

from scaleformer.data.align.page import alignment_page
from scaleformer.data.align.pipeline import RawCorpus, Translate, align_files
from scaleformer.data.config import HubConfig
from scaleformer.data.hub import hub_documents
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.sources import assign_splits
from scaleformer.formats.bitexts import Bitext, Columns, read_bitext
from scaleformer.formats.json_lines import read_jsonl, read_reversed
from scaleformer.formats.recognition import BITEXTS, FORMATS
from scaleformer.formats.suites import SUITES, Documents, read_suite
from scaleformer.formats.testsets import read_test_set
from scaleformer.formats.text_pairs import read_text_pair
from scaleformer.system.errors import DataError
from scaleformer.system.files import atomic_writer
from scaleformer.text.documents import Document, from_parts

log = logging.getLogger(__name__)

SPLITS = ("train", "valid", "test")
# why a whole corpus may be one document, by the format or the boundaries of text
_ROWS = "each file is a document; document_column groups its rows, boundaries=lines makes every row a document"
_UNITS = "each file is a document; input= also takes a folder; boundaries=lines makes every unit one"
ONE_DOCUMENT = {
    "blank": "a blank line ends a document; boundaries=lines makes every line one, boundaries=ids reads their names",
    "ids": "the lines with the same name form a document",
    "lines": "each line is a document",
    "jsonl": "each line is a document",
    **{name: _ROWS if FORMATS[name].columns else _UNITS for name in BITEXTS},
    "tsv": "the lines with the same name form a document",
    "hub": "each row is a document; document_column groups rows",
    "raw": "each pair of files is a document",
    "sacrebleu": "the test set has no more documents",
    "translations": "each line is a document",
}


@dataclass
class PrepareReport:
    """Counts of a conversion: documents and segments written, by split, and left out, by reason."""

    documents: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    dropped_segments: Counter[str] = field(default_factory=Counter)
    dropped_documents: Counter[str] = field(default_factory=Counter)
    beads: Counter[str] = field(default_factory=Counter)  # raw documents: by source and target segments, "2-1"
    examples: Counter[str] = field(default_factory=Counter)  # contrastive test suites: by kind

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Plain types, for JSON."""
        return {name: dict(counts) for name, counts in vars(self).items()}

    def table(self) -> Table:
        """A table for `rich.print`."""
        table = Table(title="Prepared")
        for column in ("", "documents", "segments"):
            table.add_column(column, justify="right" if column else "left")
        for split in () if self.examples else SPLITS:
            table.add_row(split, f"{self.documents[split]:,}", f"{self.segments[split]:,}")
        for shape, number in self.beads.most_common():
            table.add_row(f"beads {shape}", "", f"{number:,}")
        for kind, number in self.examples.items():
            table.add_row(f"examples: {kind}", f"{number:,}", "")
        for reason in sorted({*self.dropped_segments, *self.dropped_documents}):
            documents, segments = self.dropped_documents.get(reason), self.dropped_segments.get(reason)
            cells = ("" if count is None else f"{count:,}" for count in (documents, segments))
            table.add_row(f"left out: {reason}", *cells)
        return table


def prepare(
    config: PrepareConfig, translate: Translate | None = None, translated_by: str | None = None
) -> PrepareReport:
    """Convert, and return the counts. The output folder appears complete or not at all.

    translate: for aligner=translation, a function that translates documents segment by segment.
    translated_by: for format=translations, the hash of the model that made them, for the report.
    Raises DataError for bad input, an output folder that is not empty, or if nothing is left.
    """
    output = Path(config.output)
    report = PrepareReport()
    temporary = None
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise DataError(f"{output}: exists and is not an empty folder: choose another output")
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-"))
        _write(config, temporary, report, translate, translated_by)
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


def _write(
    config: PrepareConfig, folder: Path, report: PrepareReport, translate: Translate | None, translated_by: str | None
) -> None:
    for name in filter(None, (config.input, config.target, config.ids)):
        if Path(name).is_fifo():
            raise DataError(f"{name}: is a pipe, but it has to be read twice: write it to a file first")
    if config.format in SUITES:
        _write_suite(config, folder, report)
        return
    raw = align_files(config, translate) if config.format == "raw" else None
    where = config.input or config.source
    counted = PrepareReport()
    count = sum(1 for _ in _cleaned(_read(config, counted, raw), config, counted))
    if count == 0:
        raise DataError(f"{where}: no document is left ({_reasons(counted)})")
    try:
        splits = assign_splits(count, config.valid, config.test, config.seed)
    except DataError as error:
        reason = ONE_DOCUMENT[config.boundaries if config.format == "text" else config.format]
        raise DataError(f"{where}: {error}: {reason} (valid=0 test=0 uses all for training)") from None
    files: dict[str, IO[str]] = {}
    with ExitStack() as stack:
        left_out = stack.enter_context(open(folder / "left_out.jsonl", "w", encoding="utf-8"))
        for match in raw.matches if raw is not None else ():
            if match.fate != "kept":
                _name(left_out, match.document, match.fate, match.source, match.target)
        documents = _cleaned(_read(config, report, raw), config, report, left_out)
        for split, document in zip(splits, documents, strict=True):
            if split not in files:
                # No timestamp, so that the same documents give the same bytes.
                packed = stack.enter_context(gzip.GzipFile(folder / f"{split}.jsonl.gz", "wb", mtime=0))
                files[split] = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline="\n"))
            files[split].write(document.to_json() + "\n")
            report.documents[split] += 1
            report.segments[split] += len(document.source)
    if raw is not None:
        page = alignment_page(raw.matches, (config.source_language or "", config.target_language or ""))
        (folder / "alignment.html").write_text(page, encoding="utf-8")
    _write_report(config, folder, report, {} if translated_by is None else {"translated_by": translated_by})


def _write_suite(config: PrepareConfig, folder: Path, report: PrepareReport) -> None:
    """Write FORMAT.jsonl.gz, with one example per line as `scaleformer context` reads it, and report.json."""
    assert config.input is not None
    languages = config.source_language or "en", config.target_language or "de"
    documents = None if config.documents is None else Documents(config.documents, *languages, config.context)
    with atomic_writer(folder / f"{config.format}.jsonl.gz") as file:
        for example in read_suite(config.format, config.input, report.dropped_documents, documents):
            file.write(example.to_json() + "\n")
            report.examples[example.kind] += 1
    if not report.examples:
        raise DataError(f"{config.input}: no example is left ({_reasons(report)})")
    _write_report(config, folder, report, {})


def _write_report(config: PrepareConfig, folder: Path, report: PrepareReport, more: dict[str, str]) -> None:
    text = json.dumps({"settings": asdict(config), **more, **report.to_dict()}, indent=2, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")


def _reasons(report: PrepareReport) -> str:
    counts = report.dropped_segments + report.dropped_documents
    return ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "the input is empty"


def _read(config: PrepareConfig, report: PrepareReport, raw: RawCorpus | None) -> Iterator[Document]:
    if raw is not None:
        report.beads.update(raw.beads)
        report.dropped_segments.update(raw.dropped_segments)
        report.dropped_documents.update(raw.dropped_documents)
        return iter(raw.documents)
    assert config.input is not None
    if config.format == "jsonl":
        return read_jsonl(config.input)
    names = config.source_column, config.target_column, config.document_column
    if config.format in BITEXTS:
        languages = config.source_language, config.target_language
        bitext = Bitext(config.format, config.input, Columns(*names), languages, config.boundaries == "lines")
        return read_bitext(bitext, report.dropped_segments)
    if config.format == "hub":
        return hub_documents(HubConfig(config.input, config.subset, config.data_files, *names), config.split or "train")
    if config.format == "translations":
        return read_reversed(config.input, report.dropped_documents, report.dropped_segments)
    if config.format == "sacrebleu":
        return read_test_set(config.input)
    assert config.target is not None
    return read_text_pair(config.input, config.target, config.boundaries, config.ids)


def _name(file: IO[str] | None, document: str, reason: str, source: str, target: str) -> None:
    """Write a line for a segment that is left out."""
    if file is not None:
        named = {"document": document, "reason": reason, "source": source, "target": target}
        file.write(json.dumps(named, ensure_ascii=False) + "\n")


def _cleaned(
    documents: Iterable[Document], config: PrepareConfig, report: PrepareReport, left_out: IO[str] | None = None
) -> Iterator[Document]:
    """The documents without the segments that are left out, counted, and written to a file if there is one."""
    identical = total = 0
    for document in documents:
        pairs = []
        for source, target in document.parts():
            # beads with an empty side are kept on purpose
            texts = " ".join(source), " ".join(target)
            reason = _fault(*texts, config) if source and target else None
            total += 1
            identical += texts[0] == texts[1]
            if reason:
                report.dropped_segments[reason] += 1
                _name(left_out, document.id, reason, *texts)
            else:
                pairs.append((source, target))
        if len(pairs) < config.min_segments:
            report.dropped_documents[f"fewer than {config.min_segments} segments"] += 1
            report.dropped_segments["of documents left out"] += len(pairs)
            for source, target in pairs:
                _name(left_out, document.id, "of documents left out", " ".join(source), " ".join(target))
        else:
            yield from_parts(document.id, pairs)
    if left_out is not None and identical > total / 2 and not config.drop_identical:
        log.warning(
            "%d of %d segments are the same in source and target: is the target translated? drop_identical=true leaves "
            "them out",
            identical,
            total,
        )


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
