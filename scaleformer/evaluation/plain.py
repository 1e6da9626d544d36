"""Scores the output of any system, with the segments of the reference or without, against a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from scaleformer.evaluation.alignment import by_bead
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.positions import quality_by_position
from scaleformer.evaluation.resegmentation import RUN, Difference, difference, resegment
from scaleformer.evaluation.saved_translations import TranslatedDocument, save_translations
from scaleformer.evaluation.scores import BleuReport, bleu_report
from scaleformer.formats.json_lines import parse_object, read_jsonl
from scaleformer.formats.lines import Input
from scaleformer.system.errors import DataError
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import check_type, shown
from scaleformer.text.documents import Document, one_line

Field = Literal["auto", "hypothesis", "target"]
ALIGNMENT = (
    "as many segments as the reference: by index; otherwise the text is cut into as many as the reference has, by "
    "the cheapest edit of its words"
)


@dataclass(frozen=True)
class PlainScores:
    """Documents, their hypotheses with the segments of the references, and the scores.

    aligned     documents whose segment count differs from the reference, or that have no segments
    difference  text left out and text added, over all documents
    """

    documents: tuple[TranslatedDocument, ...]
    report: BleuReport
    positions: dict[str, Any]
    difference: Difference
    aligned: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        facts = {"aligned": self.aligned, "run": RUN, "difference": self.difference.to_dict()}
        return {**self.report.to_dict(), **facts, "positions": self.positions}


def score_plain(
    documents: Sequence[Document],
    hypotheses: Sequence[Sequence[str] | str],
    metrics: Metrics | None = None,
    *,
    ter: bool = True,
) -> PlainScores:
    """Score texts against the targets of documents; each is one text or a list of segments.

    Segments are compared one by one where the counts agree; otherwise the text is resegmented
    (`scaleformer.evaluation.resegmentation`). Raises ValueError as `resegment` and `bleu_report`.
    """
    found, aligned = [], 0
    total = Difference()
    for document, hypothesis in zip(documents, hypotheses, strict=True):
        given = [hypothesis] if isinstance(hypothesis, str) else list(hypothesis)
        reference, own = by_bead(document, given)
        if len(own) != len(reference.target):
            own, aligned = resegment(one_line(own), reference.target), aligned + 1
        total += difference(own, reference.target)
        found.append(TranslatedDocument(reference.id, reference.source, reference.target, tuple(own)))
    report = bleu_report(found, metrics, ter=ter)
    report = replace(report, alignment=ALIGNMENT, count_mismatches=aligned)
    return PlainScores(tuple(found), report, quality_by_position(found, metrics), total, aligned)


def write_plain(path: str | Path, scores: PlainScores, conditions: Mapping[str, Any]) -> Path:
    """Write PATH.json with the scores, PATH.jsonl with the documents for `compare`, `comet` and `consistency`."""
    path = Path(path)
    save_translations(path.with_suffix(".jsonl"), scores.documents)
    signatures = {score.metric: score.signature for score in scores.report.scores}
    payload = {**provenance(signatures=signatures), "kind": "plain", **conditions, **scores.to_dict()}
    return write_result(path.with_suffix(".json"), payload)


def read_references(path: str | Path) -> list[Document]:
    """The documents of a JSON Lines file, each with a target. Raises DataError as `read_jsonl` and if empty."""
    documents = list(read_jsonl(path))
    if not documents:
        raise DataError(f"{path}: no documents")
    return documents


def read_plain(name: str, documents: Sequence[Document], field: str = "auto") -> list[list[str] | str]:
    """Read a hypothesis for each document from a file or stdin ("-").

    JSON Lines: `hypothesis` or `target` (`field`), a list of segments or one text; matched by `id` if all have one,
    else in order. Text: one document per line, or one segment of the reference, if the counts agree, else documents
    separated by blank lines, whose lines are segments if there are as many as in the reference.
    Raises DataError where the file does not match the documents.
    """
    source = Input(name)
    if source.begin.lstrip().startswith(b"{"):
        return _from_records(source, documents, field)
    lines = [line.strip() for _, line in source.lines()]
    if len(lines) == len(documents):
        return list(lines)
    sizes = [len(document.source if document.beads else document.target) for document in documents]
    if len(lines) == sum(sizes):
        rest = iter(lines)
        return [list(islice(rest, size)) for size in sizes]
    blocks = [part.strip("\n").split("\n") for part in "\n".join(lines).split("\n\n") if part.strip()]
    if len(blocks) == len(documents):
        return list(blocks)
    raise DataError(
        f"{source.name}: {len(lines)} lines and {len(blocks)} parts separated by blank lines, but the reference has "
        f"{len(documents)} documents: wanted one document or segment per line, or a blank line between documents"
    )


def _from_records(source: Input, documents: Sequence[Document], field: str) -> list[list[str] | str]:
    check_type("field", field, Field)
    found: list[tuple[str | None, list[str] | str]] = []
    for number, line in source.lines():
        where = f"{source.name}:{number}"
        wanted = ("hypothesis", "target") if field == "auto" else (field,)
        record = parse_object(line, where, " or ".join(wanted))
        key = next((key for key in wanted if key in record), None)
        value = None if key is None else record[key]
        if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(s, str) for s in value)):
            raise DataError(f"{where}: wanted an object with {' or '.join(wanted)}, a text or a list of texts")
        name = record.get("id")
        found.append((None if name is None else str(name), value))
    names = [name for name, _ in found]
    if None not in names and len(set(names)) == len(names):
        by_name = dict(found)
        if lacking := [d.id for d in documents if d.id not in by_name]:
            raise DataError(
                f"{source.name}: no hypothesis for {len(lacking)} of {len(documents)} documents of the reference: "
                f"{', '.join(map(shown, lacking[:5]))}"
            )
        if more := set(names) - {d.id for d in documents}:
            first = shown(min(map(str, more)))
            raise DataError(f"{source.name}: {len(more)} documents are not in the reference: {first}")
        return [by_name[d.id] for d in documents]
    if len(found) != len(documents):
        twice = next((name for name in names if name is not None and names.count(name) > 1), None)
        how = "give each an id" if twice is None else f"{shown(twice)} stands there twice: give each its own id"
        raise DataError(f"{source.name}: {len(found)} documents, the reference has {len(documents)}: {how}")
    return [value for _, value in found]
