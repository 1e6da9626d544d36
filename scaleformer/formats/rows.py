"""Combines rows of tables and units of catalogues into documents."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.documents import Document, check_document

# White space that the formats use to break and indent lines; other spaces, such as no-break spaces, are text.
_SPACES = re.compile(r"[ \t\n\r\f\v]+")


@dataclass(frozen=True)
class Row:
    """A piece of a document, with equally many segments on both sides.

    where  file and line, row or unit, for messages
    name   of the document
    """

    where: str
    name: str
    source: Sequence[str]
    target: Sequence[str]


def grouped(rows: Iterable[Row], named: bool) -> Iterator[Document]:
    """A document for each run of rows with the same name.

    named: the data name the documents, so a name that returns later is a fault. Raises DataError: a row without
    segments or with different numbers on both sides, or rows of a document that are not consecutive.
    """
    name = ""
    begun: set[str] = set()
    pending: tuple[list[str], list[str]] = ([], [])
    for row in rows:
        check_document(Document(row.name, tuple(row.source), tuple(row.target)), row.where)
        if pending[0] and row.name != name:
            yield Document(name, tuple(pending[0]), tuple(pending[1]))
            pending = ([], [])
        if named and (row.name != name or not begun):
            if row.name in begun:
                raise DataError(f"{row.where}: document {shown(row.name)} began earlier: put its rows together")
            begun.add(row.name)
        name = row.name
        pending[0].extend(row.source)
        pending[1].extend(row.target)
    if pending[0]:
        yield Document(name, tuple(pending[0]), tuple(pending[1]))


def value(row: Any, column: str, where: str) -> Any:
    """A row's value in a column; a dot reaches into a column of dictionaries. Raises DataError: no such column."""
    found = row
    for key in [column] if column in row else column.split("."):
        if not isinstance(found, dict) or key not in found:
            raise DataError(f"{where}: no column {shown(column)}; there are {some(row)}")
        found = found[key]
    return found


def document_name(row: Any, column: str, where: str) -> str:
    """The document of a row, from a column. Raises DataError: no such column, or null."""
    if (found := value(row, column, where)) is None:
        raise DataError(f"{where}: column {shown(column)} holds null, wanted the name of a document")
    return str(found)


def cell(row: Any, column: str, where: str) -> list[str]:
    """A row's segments in a column, one or a list. Raises DataError for anything else."""
    found = value(row, column, where)
    segments = [found] if isinstance(found, str) else found
    if not isinstance(segments, list) or not all(isinstance(segment, str) for segment in segments):
        raise DataError(f"{where}: column {shown(column)} holds {type(found).__name__}, wanted text or a list of texts")
    return segments


def one_segment(text: str) -> str:
    """Text as one line: runs of ASCII white space become one space, without any at the ends."""
    return _SPACES.sub(" ", text).strip(" ")


def csv_lines(lines: Iterable[tuple[int, str]], name: str | Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each row of CSV that is not empty. Raises DataError with the line."""
    rows = csv.reader((f"{line}\n" for _, line in lines), strict=True)
    try:
        for cells in rows:
            if cells:  # an empty line between rows
                yield rows.line_num, cells
    except csv.Error as error:
        raise DataError(f"{name}:{rows.line_num}: malformed CSV ({error}): is a double quote not closed?") from None


def some(names: Collection[str]) -> str:
    """The first names of a collection, for messages."""
    return ", ".join(shown(name)[1:-1] for name in list(names)[:12]) + (" ..." if len(names) > 12 else "")


def brief(error: object) -> str:
    """A library's message in one line of at most 200 characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}..."
