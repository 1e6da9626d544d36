"""Converts other formats to JSON Lines splits, and counts omitted segments and documents by reason."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from scaleformer.data.align.pipeline import Translate, align_files, alignment_page
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.prepare_documents import filtering_of, kept_documents, known_of, name_left_out
from scaleformer.data.prepare_report import PrepareReport
from scaleformer.data.quality.decisions import Decisions, related_documents
from scaleformer.data.quality.inspection import quality_page
from scaleformer.data.quality.splitting import assign_groups, group_documents, proposal
from scaleformer.data.quality.survey import Survey
from scaleformer.data.sources import assign_splits
from scaleformer.formats.recognition import BITEXTS, FORMATS
from scaleformer.formats.suites import SUITES, Documents, read_suite
from scaleformer.system.errors import DataError
from scaleformer.system.files import atomic_writer

log = logging.getLogger(__name__)

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


def prepare(
    config: PrepareConfig, translate: Translate | None = None, translated_by: str | None = None
) -> PrepareReport:
    """Convert, and return the counts. The output folder appears complete or not at all.

    translate: for aligner=translation, a function that translates documents segment by segment.
    translated_by: for format=translations, the hash of the model that made them, for the report.
    Raises DataError for bad input, an output folder that is not empty, or if nothing is left.
    """
    output = Path(os.path.realpath(config.output))  # a link is no folder that can be replaced
    report = PrepareReport()
    temporary = None
    try:
        if output == Path.cwd():
            raise DataError(f"{config.output}: is the folder that you are in: choose another output")
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
    filtering = filtering_of(config, raw)
    left = kept_documents(config, counted, raw, filtering)
    kept = [(number, document.id, len(document.shapes)) for number, _, document in left]
    if not kept:
        raise DataError(f"{config.input or config.source}: no document is left ({counted.reasons()})")
    splits = _splits(config, kept, filtering)
    files: dict[str, IO[str]] = {}
    examples: dict[str, list[tuple[Any, ...]]] = {}
    with ExitStack() as stack:
        left_out = stack.enter_context(open(folder / "left_out.jsonl", "w", encoding="utf-8"))
        for match in raw.matches if raw is not None else ():
            if match.fate != "kept":
                name_left_out(left_out, match.document, match.fate, match.source, match.target)
        documents = kept_documents(config, report, raw, filtering, left_out, examples)
        for (_, own, document), drawn in zip(documents, splits, strict=True):
            split = own or drawn
            if split not in files:
                # No timestamp, so that the same documents give the same bytes.
                packed = stack.enter_context(gzip.GzipFile(folder / f"{split}.jsonl.gz", "wb", mtime=0))
                files[split] = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline="\n"))
            files[split].write(document.to_json() + "\n")
            report.documents[split] += 1
            report.segments[split] += len(document.shapes)
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
        raise DataError(f"{config.input}: no example is left ({report.reasons()})")
    _write_report(config, folder, report, {})


def _write_report(config: PrepareConfig, folder: Path, report: PrepareReport, more: dict[str, Any]) -> None:
    record = {"settings": asdict(config) | known_of(config), **more, **report.to_dict()}
    text = json.dumps(record, indent=2, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")
