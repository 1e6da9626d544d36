"""Documents to be translated and their translations, as files or pipes: JSON Lines, or text with a segment a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TextIO

from scaleformer.data.errors import DataError
from scaleformer.data.readers.documents import Document, one_line, parse_document
from scaleformer.data.readers.formats import by_name, recognise
from scaleformer.data.readers.lines import Input
from scaleformer.system.display import result_stream
from scaleformer.system.files import atomic_writer
from scaleformer.translation.translator import Translation

FORMATS = ("jsonl", "text")


@dataclass(frozen=True)
class DocumentFile:
    """What was read. gaps: of a text file the blank lines before each document, and after the last one."""

    format: str
    documents: list[Document]
    gaps: tuple[int, ...] = ()


def choose_format(format: str, source: Input) -> str:
    """ "jsonl" or "text": as asked for, or for "auto" as the input is recognised. Raises ValueError for another format,
    and for an input that is recognised as one, by its name."""
    if format in FORMATS:
        return format
    if format != "auto":
        raise ValueError(f"format={format}: choose one of auto, {', '.join(FORMATS)}")
    found = recognise(source.begin, source.name)
    if found.name not in FORMATS:
        force = "" if found.binary else "; format=text takes its lines as they are, marks and all"
        raise ValueError(f"{source.name}: {found.title}, wanted text, a segment a line, or JSON Lines{force}")
    return found.name


def choose_output_format(output_format: str, name: str, format: str) -> str:
    """ "jsonl" or "text": as asked for, or for "auto" as the name of the output says, else `format`, that of the input.
    Raises ValueError for another one, for the name of a format that is no text, and for text of JSON Lines, whose names
    and references it would lose."""
    if output_format not in ("auto", *FORMATS):
        raise ValueError(f"output_format={output_format}: choose one of auto, {', '.join(FORMATS)}")
    if output_format == "text" and format == "jsonl":
        raise ValueError("output_format=text: the input is JSON Lines, which stays JSON Lines: leave it out")
    named = by_name(name)
    if named is not None and named.binary:
        raise ValueError(f"output={name}: {named.title} is not written: give a name in .txt or .jsonl")
    if output_format == "auto":
        return "jsonl" if named is not None and named.name == "jsonl" else format
    return output_format


def read_documents(source: Input, format: str) -> DocumentFile:
    """Read a file, a pipe or stdin, compressed (gzip) or not. Raises DataError with file and line, and where there is
    no line.

    A text of blank lines alone has no documents, only gaps.
    """
    where, lines = source.name, source.lines()
    if format == "text":
        found = _read_text(lines, where)
    else:
        found = DocumentFile(
            format, [parse_document(line, f"{where}:{number}", require_target=False) for number, line in lines]
        )
    if not found.documents and not any(found.gaps):
        raise DataError(f"{where}: no documents")
    return found


def _read_text(lines: Iterable[tuple[int, str]], where: str) -> DocumentFile:
    documents: list[Document] = []
    gaps = [0]
    segments: list[str] = []
    first = 1
    for number, line in lines:
        if line.strip():
            if not segments:
                first = number
            segments.append(line)
            continue
        if segments:
            documents.append(Document(f"{where}:{first}", tuple(segments)))
            gaps.append(0)
            segments = []
        gaps[-1] += 1
    if segments:
        documents.append(Document(f"{where}:{first}", tuple(segments)))
        gaps.append(0)
    return DocumentFile("text", documents, tuple(gaps))


@contextmanager
def translation_writer(name: str) -> Iterator[TextIO]:
    """The output, opened before the work begins: stdout for "-", else a file that is replaced when all is written;
    UTF-8 both."""
    if name == "-":
        stdout = result_stream()
        try:
            yield stdout
            stdout.flush()
        except OSError as error:
            error.filename = error.filename or "stdout"  # which does not say so
            raise
    else:
        with atomic_writer(name) as file:
            yield file


def write_translations(
    file: TextIO,
    source: DocumentFile,
    translations: Sequence[Translation],
    format: str | None = None,
    *,
    lists: bool = False,
) -> None:
    """Write translations in the shape of what was read, or as JSON Lines.

    text: a segment a line (line breaks in it made spaces), blank lines where the source has them. jsonl: id, source,
    target where the source has one (the reference), hypothesis, finished, log_probability and score; with `lists` all
    hypotheses in n_best, where there is but one, too.
    """
    if (format or source.format) == "text":
        for gap, translation in zip(source.gaps, translations, strict=False):
            file.write("\n" * gap)
            file.writelines(one_line([segment]) + "\n" for segment in translation.segments)
        file.write("\n" * source.gaps[-1])
        return
    for document, translation in zip(source.documents, translations, strict=True):
        best = translation.hypotheses[0]
        record: dict[str, object] = {"id": document.id, "source": document.source}
        if document.target:
            record["target"] = document.target
        record |= {
            "hypothesis": best.segments,
            "finished": best.finished,
            "log_probability": best.log_probability,
            "score": best.score,
        }
        if lists:
            record["n_best"] = [asdict(hypothesis) for hypothesis in translation.hypotheses]
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
