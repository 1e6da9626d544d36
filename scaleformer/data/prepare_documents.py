"""The documents that `prepare` converts: read, cleaned, filtered; what is left out is counted and named."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import IO, Any

from scaleformer.data.align.pipeline import RawCorpus
from scaleformer.data.config import DataConfig, HubConfig
from scaleformer.data.hub import hub_documents
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.prepare_report import PrepareReport
from scaleformer.data.quality.checks import BITS, EXCHANGED
from scaleformer.data.quality.decisions import Decisions, decide, filtered
from scaleformer.data.quality.survey import Split, Survey, survey
from scaleformer.data.sources import segmentation, split_sources
from scaleformer.formats.bitexts import Bitext, Columns, read_bitext
from scaleformer.formats.json_lines import read_jsonl, read_translations
from scaleformer.formats.recognition import BITEXTS
from scaleformer.formats.testsets import read_test_set
from scaleformer.formats.text_pairs import read_text_pair
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, from_parts

log = logging.getLogger(__name__)

EXAMPLES = 10  # of each filter on report.html


def filtering_of(config: PrepareConfig, raw: RawCorpus | None) -> tuple[Survey, Decisions] | None:
    """What the filters decide on the documents; None where none is on."""
    filters = config.filters.active(config.format == "raw")
    if not filters:
        return None
    known = known_of(config)
    languages = [getattr(config, name) or known.get(name) for name in ("source_language", "target_language")]

    def read() -> Iterator[Split]:
        return _cleaned(_read(config, PrepareReport(), raw), config, PrepareReport())

    found = survey(read, filters, languages, processes=config.num_proc)
    exchanged, segments = int((found["faults"] & BITS[EXCHANGED] > 0).sum()), len(found["faults"])
    if all(languages) and exchanged > segments / 2:
        those = f"{exchanged} of {segments} sources are {languages[1]}, and their targets {languages[0]}"
        raise DataError(f"{those}: exchange source and target")
    return found, decide(found, config.filters, filters)


def known_of(config: PrepareConfig) -> dict[str, str | None]:
    """What is known of the segments of a folder that was prepared before: grain and languages; {} of other input."""
    return segmentation(DataConfig("jsonl", path=config.input)) if config.own_splits else {}


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
        return read_translations(config.input, config.side, report.dropped_documents, report.dropped_segments)
    if config.format == "sacrebleu":
        return read_test_set(config.input)
    assert config.target is not None
    return read_text_pair(config.input, config.target, config.boundaries, config.ids)


def name_left_out(file: IO[str] | None, document: str, reason: str, source: str, target: str) -> None:
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
            identical += texts[0].strip() == texts[1].strip() != ""
            if reason:
                report.dropped_segments[reason] += 1
                name_left_out(left_out, document.id, reason, *texts)
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


def kept_documents(
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
            name_left_out(left_out, document.id, reason, source, target)
            some = [] if examples is None else examples.setdefault(f"filter {reason}", [])
            if len(some) < EXAMPLES:
                some.append((split, document.id, place, source, target))
        if filtering is not None and (whole := filtering[1].whole[number]) >= 0:
            report.dropped_documents[filtering[1].names[whole]] += 1
        elif len(kept.shapes) < config.min_segments and split not in ("valid", "test"):
            report.dropped_documents[f"fewer than {config.min_segments} segments"] += 1
            report.dropped_segments["of documents left out"] += len(kept.shapes)
            for part in kept.parts():
                name_left_out(left_out, document.id, "of documents left out", " ".join(part[0]), " ".join(part[1]))
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
