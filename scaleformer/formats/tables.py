"""Tables with named columns: CSV, TSV and Parquet; and TSV of document, source and target without names.

A cell is a segment, or in Parquet a list of them.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scaleformer.formats.lines import read_lines
from scaleformer.formats.rows import Row, brief, cell, some, value
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.documents import Document, checked

_ROWS = 1000  # of a Parquet file, unpacked at a time
_LARGEST = 1 << 30  # bytes of a row group, unpacked


_COLUMNS = {
    "document": ("document", "document_id", "doc", "doc_id", "docid", "id"),
    "source": ("source", "src", "source_text"),
    "target": ("target", "tgt", "trg", "target_text", "translation", "reference", "ref"),
}
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][a-z]{2,4})?", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Names of columns; document="": no column names documents. A dot reaches into a column of dictionaries."""

    source: str = "source"
    target: str = "target"
    document: str = ""


def read_table(path: Path, format: str, name: str, columns: Columns) -> Iterator[Row]:
    """The rows of a csv, tsv or parquet file.

    Without a document column a row of lists is a document, and rows of texts form the document `name`. Cells stay
    unchanged. Raises DataError with file and line or row: no such column, or a cell without text (null).
    """
    for where, number, row in _parquet(path, columns) if format == "parquet" else _lines(path, format):
        source, target = (cell(row, column, where) for column in (columns.source, columns.target))
        if columns.document:
            document = str(value(row, columns.document, where))
        else:
            document = name if isinstance(value(row, columns.source, where), str) else f"{name}/{number}"
        yield Row(where, document, source, target)


def has_names(path: Path, columns: Columns) -> bool:
    """Whether the first line of a TSV is a header."""
    header = next((line for _, line in read_lines(path, "tsv")), "").split("\t")
    return {columns.source, columns.target} <= set(header) and (bool(columns.document) or len(header) != 3)


def _lines(path: Path, format: str) -> Iterator[tuple[str, int, dict[str, str]]]:
    header: list[str] = []
    for number, cells in _csv(path) if format == "csv" else _tsv(path):
        where = f"{path}:{number}"
        if not header:
            header = cells
            if len(set(header)) < len(header):
                raise DataError(f"{where}: two columns have the same name: {some(header)}")
            continue
        if len(cells) != len(header):
            raise DataError(f"{where}: {len(cells)} cells, wanted {len(header)}: {some(header)}")
        yield where, number, dict(zip(header, cells, strict=True))


def _tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path, "tsv"):
        yield number, line.split("\t")


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader((f"{line}\n" for _, line in read_lines(path, "csv")), strict=True)
    try:
        for cells in rows:
            if cells:  # an empty line between rows
                yield rows.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}:{rows.line_num}: malformed CSV ({error}): is a double quote not closed?") from None


def _parquet(path: Path, columns: Columns) -> Iterator[tuple[str, int, dict[str, Any]]]:
    number = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            present = file.schema_arrow.names
            for group in range(file.metadata.num_row_groups):
                if (size := file.metadata.row_group(group).total_byte_size) > _LARGEST:
                    raise DataError(f"{path}: row group {group + 1} has {size:,} bytes: write smaller row groups")
            wanted = {name if name in present else name.split(".")[0] for name in vars(columns).values() if name}
            if missing := sorted(wanted - set(present)):
                raise DataError(f"{path}: no column {shown(missing[0])}; there are {some(present)}")
            for batch in file.iter_batches(_ROWS, columns=sorted(wanted)):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}[{number}]", number, row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: damaged Parquet file ({brief(error)}): row {number + 1}") from None


def read_tsv(path: str | Path, dropped: Counter[str] | None = None) -> Iterator[Document]:
    """Documents of a TSV file: document id, source and target on each line; a document's lines are consecutive.

    A header line sets the order of the columns and is counted in `dropped`. Raises DataError with file and line for
    anything else.
    """
    pending: tuple[list[str], list[str]] = ([], [])
    current = ""
    seen: set[str] = set()
    order = [0, 1, 2]
    for number, line in read_lines(path, "tsv"):
        columns = line.split("\t")
        if len(columns) != 3:
            raise DataError(f"{path}:{number}: {len(columns)} columns, wanted 3: document id, source, target")
        if number == 1 and (named := _header(columns)):
            order = named
            if dropped is not None:
                dropped["the names of the columns"] += 1
            continue
        name, source, target = (columns[place] for place in order)
        if pending[0] and name != current:
            yield checked(current, pending, f"{path}:{number}")
            seen.add(current)
            pending = ([], [])
        if name in seen:
            raise DataError(f"{path}:{number}: document {shown(name)} began earlier: put its lines together")
        current = name
        pending[0].append(source)
        pending[1].append(target)
    if pending[0]:
        yield checked(current, pending, str(path))


def _header(cells: Sequence[str]) -> list[int] | None:
    """The places of document, source and target in a header line; languages may name the last two."""
    names = [cell.strip().lower() for cell in cells]
    places = [next((i for i, name in enumerate(names) if name in _COLUMNS[role]), None) for role in _COLUMNS]
    if places[0] is not None and places[1:] == [None, None]:
        others = [i for i in range(3) if i != places[0]]
        if all(_LANGUAGE.fullmatch(names[i]) for i in others):
            return [places[0], *others]
    return [place for place in places if place is not None] if None not in places else None
