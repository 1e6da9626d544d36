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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.table import Table

from scaleformer.data.align.page import alignment_page
from scaleformer.data.align.pipeline import RawCorpus, Translate, align_files
from scaleformer.data.config import DataConfig, HubConfig
from scaleformer.data.hub import hub_documents
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.quality.checks import BITS, EXCHANGED
from scaleformer.data.quality.decisions import Decisions, decide, filtered, related_documents
from scaleformer.data.quality.inspection import quality_page
from scaleformer.data.quality.splitting import assign_groups, group_documents, proposal
from scaleformer.data.quality.survey import SPLITS, Split, Survey, survey
from scaleformer.data.sources import assign_splits, split_sources
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

EXAMPLES = 10  # of each filter on report.html
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
    counted = PrepareReport()
    filtering = _filtering(config, raw)
    kept = [
        (number, document.id, len(document.source)) for number, _, document in _kept(config, counted, raw, filtering)
    ]
    if not kept:
        raise DataError(f"{config.input or config.source}: no document is left ({_reasons(counted)})")
    splits = _splits(config, kept, filtering)
    files: dict[str, IO[str]] = {}
    examples: dict[str, list[tuple[Any, ...]]] = {}
    with ExitStack() as stack:
        left_out = stack.enter_context(open(folder / "left_out.jsonl", "w", encoding="utf-8"))
        for match in raw.matches if raw is not None else ():
            if match.fate != "kept":
                _name(left_out, match.document, match.fate, match.source, match.target)
        documents = _kept(config, report, raw, filtering, left_out, examples)
        for (_, own, document), drawn in zip(documents, splits, strict=True):
            split = own or drawn
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
    more: dict[str, Any] = {} if translated_by is None else {"translated_by": translated_by}
    if filtering is not None:
        more |= {"filters": filtering[1].filters, "gaps": filtering[1].gaps}
        (folder / "report.html").write_text(quality_page(more, examples), encoding="utf-8")
    for split, share in (("valid", config.valid), ("test", config.test)):
        if not config.own_splits and (line := proposal(split, share, report.documents[split], report.segments[split])):
            log.warning("%s", line)
    _write_report(config, folder, report, more)


def _filtering(config: PrepareConfig, raw: RawCorpus | None) -> tuple[Survey, Decisions] | None:
    """What the filters decide on the documents; None where none is on."""
    filters = config.filters.active(config.format == "raw")
    if not filters:
        return None
    languages = config.source_language, config.target_language

    def read() -> Iterator[Split]:
        return _cleaned(_read(config, PrepareReport(), raw), config, PrepareReport())

    found = survey(read, filters, languages, processes=config.num_proc)
    exchanged, segments = int((found["faults"] & BITS[EXCHANGED] > 0).sum()), len(found["faults"])
    if exchanged > segments / 4:
        raise DataError(
            f"{exchanged} of {segments} sources are {config.target_language}, and their targets "
            f"{config.source_language}: exchange source and target"
        )
    return found, decide(found, config.filters, filters)


def _splits(
    config: PrepareConfig, kept: Sequence[tuple[int, str, int]], filtering: tuple[Survey, Decisions] | None
) -> list[str]:
    """The split of each document that is kept; "" where the input has its own."""
    if config.own_splits:
        return [""] * len(kept)
    try:
        leakage = config.filters.active().get("leakage")
        if config.groups is None and leakage is None:
            return assign_splits(len(kept), config.valid, config.test, config.seed)
        place = {number: n for n, (number, _, _) in enumerate(kept)}
        pairs = related_documents(filtering[0], leakage).tolist() if filtering and leakage is not None else []
        related = [(place[one], place[other]) for one, other in pairs if one in place and other in place]
        groups = group_documents([name for _, name, _ in kept], config.groups, related)
        return assign_groups(groups, [size for *_, size in kept], config.valid, config.test, config.seed)
    except DataError as error:
        reason = ONE_DOCUMENT[config.boundaries if config.format == "text" else config.format]
        where = config.input or config.source
        raise DataError(f"{where}: {error}: {reason} (valid=0 test=0 uses all for training)") from None


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


def _write_report(config: PrepareConfig, folder: Path, report: PrepareReport, more: dict[str, Any]) -> None:
    text = json.dumps({"settings": asdict(config), **more, **report.to_dict()}, indent=2, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")


def _reasons(report: PrepareReport) -> str:
    counts = report.dropped_segments + report.dropped_documents
    return ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "the input is empty"


def _read(config: PrepareConfig, report: PrepareReport, raw: RawCorpus | None) -> Iterator[Split]:
    """The documents, with the split that they have in the input, "" for none."""
    if config.own_splits:
        for name, source in split_sources(DataConfig("jsonl", path=config.input)).items():
            for document in source.read():
                yield name, document
        return
    for document in _documents(config, report, raw):
        yield "", document


def _documents(config: PrepareConfig, report: PrepareReport, raw: RawCorpus | None) -> Iterator[Document]:
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
    documents: Iterable[Split], config: PrepareConfig, report: PrepareReport, left_out: IO[str] | None = None
) -> Iterator[Split]:
    """The documents without the segments that are left out, counted, and written to a file if there is one. Those of
    another split than train stay as they are."""
    identical = total = 0
    for split, document in documents:
        if split in ("valid", "test"):
            yield split, document
            continue
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
        yield split, from_parts(document.id, pairs)
    if left_out is not None and identical > total / 2 and not config.drop_identical:
        log.warning(
            "%d of %d segments are the same in source and target: is the target translated? drop_identical=true leaves "
            "them out",
            identical,
            total,
        )


def _kept(
    config: PrepareConfig,
    report: PrepareReport,
    raw: RawCorpus | None,
    filtering: tuple[Survey, Decisions] | None,
    left_out: IO[str] | None = None,
    examples: dict[str, list[tuple[Any, ...]]] | None = None,
) -> Iterator[tuple[int, str, Document]]:
    """Number, split and text of the documents that stay after all filters; what was taken is counted and named."""
    cleaned = _cleaned(_read(config, report, raw), config, report, left_out)
    for number, (split, document) in enumerate(cleaned):
        kept, taken = document, list[tuple[int, str, str, str]]()
        if filtering is not None:
            kept, taken = filtered(document, number, *filtering, config.filters.segments == "unaligned")
        for place, reason, source, target in taken:
            report.dropped_segments[reason] += 1
            _name(left_out, document.id, reason, source, target)
            some = [] if examples is None else examples.setdefault(f"filter {reason}", [])
            if len(some) < EXAMPLES:
                some.append((split, document.id, place, source, target))
        if filtering is not None and (whole := filtering[1].whole[number]) >= 0:
            report.dropped_documents[filtering[1].names[whole]] += 1
        elif len(kept.shapes) < config.min_segments and split not in ("valid", "test"):
            report.dropped_documents[f"fewer than {config.min_segments} segments"] += 1
            report.dropped_segments["of documents left out"] += len(kept.shapes)
            for part in kept.parts():
                _name(left_out, document.id, "of documents left out", " ".join(part[0]), " ".join(part[1]))
        else:
            yield number, split, kept


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
