"""Translated documents: their files (`bleu-SPLIT.jsonl`), and their lines for metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaleformer.evaluation.alignment import align_segments, by_bead
from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.system.files import atomic_writer
from scaleformer.text.documents import Document, Level, one_line
from scaleformer.translation.translations import Translation


@dataclass(frozen=True)
class TranslatedDocument:
    """A document with its reference and a translation of it, as segments. finished is False if a length limit ended the
    translation, in the source segments `cut`."""

    id: str
    source: Sequence[str]
    target: Sequence[str]
    hypothesis: Sequence[str]
    finished: bool = True
    cut: Sequence[int] = ()


@dataclass(frozen=True)
class ParallelLines:
    """Sources, references and hypotheses, line by line."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]


def save_translations(path: str | Path, documents: Iterable[TranslatedDocument]) -> None:
    """Write JSON Lines with the fields of each document. Raises OSError."""
    with atomic_writer(path) as file:
        file.writelines(json.dumps(asdict(document), ensure_ascii=False) + "\n" for document in documents)


def translated(documents: Sequence[Document], translations: Sequence[Translation]) -> list[TranslatedDocument]:
    """Documents with their translations, beads as segments where segments do not match one to one."""
    pairs = [by_bead(d, t.segments) for d, t in zip(documents, translations, strict=True)]
    return [
        TranslatedDocument(d.id, d.source, d.target, hypothesis, t.finished, t.cut)
        for (d, hypothesis), t in zip(pairs, translations, strict=True)
    ]


def read_translations(path: str | Path) -> list[TranslatedDocument]:
    """Read the texts of `save_translations`. Raises DataError with file and line."""
    found = []
    for number, line in read_lines(path):
        try:
            record = json.loads(line)
            source, target, hypothesis = (tuple(map(_text, record[k])) for k in ("source", "target", "hypothesis"))
            found.append(TranslatedDocument(str(record["id"]), source, target, hypothesis))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else error
            wanted = "wanted id, source, target and hypothesis, as evaluate writes them"
            raise DataError(f"{path}:{number}: not a saved translation ({why}): {wanted}") from None
    if not found:
        raise DataError(f"{path}: no translations")
    return found


def translations_of(path: str | Path, split: str) -> Path:
    """The file of translations of a run directory, or a file itself. Raises ValueError where there is none."""
    path = Path(path)
    file = path / "results" / f"bleu-{split}.jsonl" if path.is_dir() else path
    if not path.exists():
        raise ValueError(f"{path}: no such run directory or file of translations")
    if not file.is_file():
        raise ValueError(f"{path}: no translations ({file} is missing): run `scaleformer evaluate checkpoint={path}`")
    return file


def stem(path: str | Path) -> str:
    """The name of a file of translations without its extensions: `bleu-test` of bleu-test.jsonl.gz."""
    return Path(path).name.removesuffix(".gz").removesuffix(".jsonl")


def result_of(path: str | Path) -> dict[str, Any]:
    """The result file of saved translations; {} without one, as for moved files or other programs."""
    path = Path(path)
    try:
        record = json.loads(path.with_name(f"{stem(path)}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def origin(path: str | Path) -> dict[str, Any]:
    """Seed, checkpoint and its parent of saved translations, for `provenance`, from their result file; or {}."""
    record = result_of(path)
    try:
        checkpoint = record["checkpoint"] or {"path": None, "sha256": None}
        known = {"seed": record["seed"], "parent": record.get("parent")}
        return {**known, "checkpoint": checkpoint["path"], "checkpoint_sha256": checkpoint["sha256"]}
    except (KeyError, TypeError):
        return {}


def lines_of(documents: Sequence[TranslatedDocument], level: Level = "segment") -> ParallelLines:
    """One line per document, its segments joined by a space, or one line per reference segment, hypotheses aligned.

    Where segment counts of source and reference differ, the sources of segments are empty.
    """
    lines = ParallelLines([], [], [])
    for d in documents:
        if level == "document":
            texts = [[one_line(side)] for side in (d.source, d.target, d.hypothesis)]
        else:
            sources = list(d.source) if len(d.source) == len(d.target) else [""] * len(d.target)
            aligned = align_segments(d.hypothesis, d.target)
            texts = [[one_line([segment]) for segment in side] for side in (sources, d.target, aligned)]
        for target, side in zip((lines.sources, lines.references, lines.hypotheses), texts, strict=True):
            target += side
    return lines


def windows_of(documents: Sequence[TranslatedDocument], window: int, stride: int = 1) -> ParallelLines:
    """One line for each window of so many segments, joined by a space, as SLIDE [Raunak 2023] scores them.

    Windows begin at every `stride`-th segment and lie within a document; the last one ends with the document. A shorter
    document is one window. Segment counts of source and reference are equal.
    """
    lines = ParallelLines([], [], [])
    for document in documents:
        own = lines_of([document])
        if not own.references:
            continue
        last = max(len(own.references) - window, 0)
        for start in dict.fromkeys((*range(0, last, stride), last)):
            part = slice(start, start + window)
            lines.sources.append(one_line(own.sources[part]))
            lines.references.append(one_line(own.references[part]))
            lines.hypotheses.append(one_line(own.hypotheses[part]))
    return lines


def same_documents(systems: dict[str, list[TranslatedDocument]]) -> None:
    """Raises ValueError unless all systems translated the same documents in the same order with the same references."""
    (first, documents), *others = systems.items()
    for name, found in others:
        if [(d.id, d.target) for d in found] != [(d.id, d.target) for d in documents]:
            raise ValueError(
                f"{first} ({len(documents)} documents) and {name} ({len(found)}) differ in documents or references: "
                "wanted translations of the same ones"
            )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value
