"""Documents to translate and their translations in files or pipes: JSON Lines, or text with one segment per line."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Literal, TextIO

from scaleformer.formats.blocks import MARK, Block, Span
from scaleformer.formats.files import BlockFile
from scaleformer.formats.json_lines import document_of, parse_object
from scaleformer.formats.lines import Input, read_lines
from scaleformer.formats.recognition import by_name, recognise
from scaleformer.formats.restoring import Change
from scaleformer.system.display import counted, result_stream
from scaleformer.system.errors import DataError
from scaleformer.system.files import atomic_writer
from scaleformer.system.schema import shown
from scaleformer.text.documents import Document, one_line
from scaleformer.translation.alternatives import Alternative
from scaleformer.translation.files.setup import FileDocument
from scaleformer.translation.forced import read_draft, read_forced
from scaleformer.translation.terms import read_terms_of
from scaleformer.translation.translations import Translation
from scaleformer.translation.word_alignments import Links, as_pharaoh

LinesFormat = Literal["auto", "text", "jsonl"]
Boundaries = Literal["file", "blank", "ids", "lines"]


@dataclass(frozen=True)
class LinesFile:
    """The documents of JSON Lines, or of text with one segment per line, and the file with their translations.

    gaps  for text: the blank lines before each segment, by document; the last tuple has those after all segments
    """

    format: str
    documents: list[FileDocument]
    gaps: tuple[tuple[int, ...], ...] = ()
    spans: ClassVar[int] = 0

    def counts(self) -> str:
        """ "2 documents, 6 segments"."""
        segments = sum(len(document.source) for document in self.documents)
        return f"{counted(len(self.documents), 'document')}, {counted(segments, 'segment')}"

    def write(self, translations: Sequence[Translation], counts: Counter[str]) -> bytes:
        """The content of the translated file."""
        text = io.StringIO()
        write_translations(text, self, translations)
        return text.getvalue().encode()

    def expected(self, texts: Sequence[str]) -> tuple[list[str], list[list[int]]]:
        """As of `ProseFile`: each segment is a block."""
        return list(texts), [[number, 0, len(text)] for number, text in enumerate(texts)]

    def read_written(self, content: bytes, name: str) -> BlockFile:
        """A translation of the file. Raises DataError."""
        return _Hypotheses(content, name)


class _Hypotheses:
    """A file of translations, each segment of which is a block. Raises DataError."""

    def __init__(self, content: bytes, name: str) -> None:
        self.left: Counter[str] = Counter()
        texts, self._rest = list[str](), list[Any]()
        for number, line in Input(name, content).lines():
            try:
                record = json.loads(line)
                texts += [text + "" for text in record["hypothesis"]]
                self._rest.append({**record, "hypothesis": len(record["hypothesis"])})
            except (ValueError, TypeError, KeyError, RecursionError):
                raise DataError(f'{name}:{number}: wanted a line of JSON with "hypothesis": ["..."]') from None
        self.blocks = [Block(text, (Span(MARK),) * text.count(MARK), ()) for text in texts]

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """All but the segments."""
        return json.dumps(self._rest).encode()


def choose_format(format: LinesFormat, source: Input) -> str:
    """ "jsonl" or "text": the given format, or for "auto" the recognised one. Raises ValueError where it is another."""
    if format != "auto":
        return format
    found = recognise(source.begin, source.name)
    if found.name not in ("jsonl", "text"):
        force = "" if found.binary else "; format=text reads it as plain text, marks included"
        raise ValueError(f"{source.name}: {found.title}, wanted text (one segment per line) or JSON Lines{force}")
    return found.name


def choose_output_format(output_format: LinesFormat, name: str, format: str) -> str:
    """ "jsonl" or "text": the given format, or for "auto" that of the output name, else `format`, that of the input.
    Raises ValueError for text from JSON Lines, which would lose names and references."""
    if output_format == "text" and format == "jsonl":
        raise ValueError("output_format=text: JSON Lines input needs JSON Lines output: leave it out")
    named = by_name(name)
    if named is not None and named.binary:
        raise ValueError(f"output={name}: {named.title} cannot be written: give a name ending in .txt or .jsonl")
    if output_format == "auto":
        return "jsonl" if named is not None and named.name in ("jsonl", "json") else format
    return output_format


def read_documents(source: Input, format: str, boundaries: Boundaries = "file", ids: str | None = None) -> LinesFile:
    """Read a file, a pipe or stdin, compressed (gzip) or not.

    boundaries  for text, whose blank lines are not segments: "file" one document; "blank" blank lines end documents;
                "lines" each line is a document; "ids" line n of the file `ids` names the document of line n
    A text of blank lines has no documents, only gaps. Raises DataError with file and line, also for empty input;
    ValueError for settings that do not fit.
    """
    if (boundaries == "ids") != (ids is not None):
        raise ValueError("boundaries=ids and ids=FILE belong together: line n of the file names the document of line n")
    if format == "jsonl" and boundaries != "file":
        raise ValueError(f"boundaries={boundaries}: for text only; in JSON Lines each line is a document: leave it out")
    where, lines = source.name, source.lines()
    if format == "text":
        found = _read_text(lines, where, boundaries, ids)
    else:
        documents = []
        for number, line in lines:
            place = f"{where}:{number}"
            record = parse_object(line, place, "id, source, target")
            read = document_of(record, place, require_target=False)
            forced = read_forced(record, place, len(read.source))
            terms, draft = read_terms_of(record, place), read_draft(record, place)
            documents.append(FileDocument(read.id, read.source, read.target, forced=forced, terms=terms, draft=draft))
        found = LinesFile(format, documents)
    if not found.documents and not any(map(any, found.gaps)):
        raise DataError(f"{where}: no documents")
    return found


def _read_text(lines: Iterable[tuple[int, str]], where: str, boundaries: Boundaries, ids: str | None) -> LinesFile:
    texts: dict[str, list[tuple[int, int, str]]] = {}  # gap, line and text of each segment, by document
    names = iter(read_lines(ids)) if ids is not None else None
    current, gap, label = "", 0, ""
    for number, line in lines:
        if names is not None:
            if (named := next(names, None)) is None:
                raise DataError(f"{ids}: ends before line {number} of {where}: each line there needs a name here")
            label = named[1]
        if not line.strip():
            gap += 1
            continue
        if names is not None:
            if label in texts and label != current:
                raise DataError(f"{ids}:{number}: document {shown(label)} began earlier: its lines must be consecutive")
            current = label
        elif not texts or boundaries == "lines" or (boundaries == "blank" and gap):
            current = f"{where}:{number}"
        texts.setdefault(current, []).append((gap, number, line))
        gap = 0
    if names is not None and (more := next(names, None)) is not None:
        raise DataError(f"{ids}:{more[0]}: {where} ends before this line")
    documents = [
        FileDocument(name, tuple(s for _, _, s in segments), where=tuple(f"{where}:{n}" for _, n, _ in segments))
        for name, segments in texts.items()
    ]
    gaps = [tuple(blank for blank, _, _ in segments) for segments in texts.values()]
    return LinesFile("text", documents, (*gaps, (gap,)))


@contextmanager
def translation_writer(name: str) -> Iterator[TextIO]:
    """The output in UTF-8: stdout for "-", else a file that is replaced at the end."""
    if name == "-":
        stdout = result_stream()
        try:
            yield stdout
            stdout.flush()
        except OSError as error:
            error.filename = error.filename or "stdout"  # which names no file
            raise
    else:
        with atomic_writer(name) as file:
            yield file


def write_translations(
    file: TextIO, source: LinesFile, translations: Iterable[Translation], format: str | None = None, *,
    lists: bool = False, first: int = 0, alternatives: Sequence[Sequence[Sequence[Alternative]]] = (),
    alignments: Sequence[Sequence[Links]] = (),
) -> None:  # fmt: skip
    """Write translations in the form of the input, or as JSON Lines; first: the number of the first one; alternatives,
    alignments: for each translation, by segment, for JSON Lines.

    text: one segment per line (line breaks become spaces), blank lines as in the source. jsonl: id, source, target (the
    reference, if the source has one), hypothesis, finished, cut, log_probability and score, of judged
    ones confidence and unsure; with `lists` also all hypotheses in n_best, even a single one.
    """
    text = (format or source.format) == "text"
    number = first
    for number, translation in enumerate(translations, first + 1):
        if text:
            for gap, segment in zip_longest(source.gaps[number - 1], translation.segments):
                file.write("\n" * (gap or 0))
                if segment is not None:
                    file.write(one_line([segment]) + "\n")
        else:
            record = _record(source.documents[number - 1], translation, lists)
            if alternatives:
                segments = alternatives[number - first - 1]
                record["alternatives"] = [[asdict(one) for one in some] for some in segments]
            if alignments:
                record["alignments"] = [as_pharaoh(links) for links in alignments[number - first - 1]]
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    if text and number == len(source.documents):
        file.write("\n" * source.gaps[-1][0])


def _record(document: Document, translation: Translation, lists: bool) -> dict[str, object]:
    best = translation.hypotheses[0]
    record: dict[str, object] = {"id": document.id, "source": document.source}
    if document.target:
        record["target"] = document.target
    record |= {
        "hypothesis": best.segments,
        "finished": best.finished,
        "cut": best.cut,
        "log_probability": best.log_probability,
        "score": best.score,
    }
    if translation.judged:
        record["confidence"] = [one and one.expected for one in translation.judged]
        record["unsure"] = translation.unsure
    if lists:
        record["n_best"] = [asdict(hypothesis) for hypothesis in translation.hypotheses]
    return record
