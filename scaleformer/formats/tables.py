"""Tables with named columns: CSV, TSV and Parquet; and TSV of document, source and target without names.

A cell is a segment, or in Parquet a list of them. Cells stay unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scaleformer.formats.bitexts import Bitext, Columns
from scaleformer.formats.lines import read_lines
from scaleformer.formats.rows import Row, brief, cell, csv_lines, document_name, some, value
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_ROWS = 1000  # of a Parquet file, unpacked at a time
_LARGEST = 1 << 30  # bytes of a row group, unpacked
_NAMES = {
    "document": ("document", "document_id", "doc", "doc_id", "docid", "id"),
    "source": ("source", "src", "source_text"),
    "target": ("target", "tgt", "trg", "target_text", "translation", "reference", "ref"),
}
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][a-z]{2,4})?", re.IGNORECASE)
_Line = tuple[int, list[str]]  # its number and cells


def read_rows(path: Path, name: str, bitext: Bitext, dropped: Counter[str]) -> Iterator[Row]:
    """The rows of a csv, tsv or parquet file.

    Without a document column a row of lists is a document, and rows of texts form the document `name`. The names of the
    columns of a TSV are counted in `dropped` if only their meaning tells that they are names. Raises DataError with
    file and line or row: no such column, or a cell without text (null).
    """
    columns = bitext.columns
    if bitext.format == "parquet":
        rows = _parquet(path, columns)
    else:
        read = read_lines(path, bitext.format)
        lines = csv_lines(read, path) if bitext.format == "csv" else ((n, line.split("\t")) for n, line in read)
        header = next(lines, (1, []))
        if bitext.format == "tsv" and columns == Columns():
            header, lines, columns = _without_names(header, lines, path, dropped)
        rows = _by_name(header, lines, path)
    for number, (where, row) in enumerate(rows, 1):
        source, target = (cell(row, column, where) for column in (columns.source, columns.target))
        if columns.document:
            document = document_name(row, columns.document, where)
        else:
            document = name if isinstance(value(row, columns.source, where), str) else f"{name}/{number}"
        yield Row(where, document, source, target)


def _by_name(header: _Line, lines: Iterator[_Line], path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    names = header[1]
    if len(set(names)) < len(names):
        raise DataError(f"{path}:{header[0]}: two columns have the same name: {some(names)}")
    for number, cells in lines:
        if len(cells) != len(names):
            raise DataError(f"{path}:{number}: {len(cells)} cells, wanted {len(names)}: {some(names)}")
        yield f"{path}:{number}", dict(zip(names, cells, strict=True))


def _without_names(
    first: _Line, lines: Iterator[_Line], path: Path, dropped: Counter[str]
) -> tuple[_Line, Iterator[_Line], Columns]:
    """Names, other lines and columns of a TSV that may begin with names, or consist of document, source and target."""
    number, cells = first
    names = [name.strip().lower() for name in cells]
    roles = [next((role for role, known in _NAMES.items() if name in known), "") for name in names]
    others = [place for place, role in enumerate(roles) if not role]
    if len(others) == 2 and "document" in roles and all(_LANGUAGE.fullmatch(names[place]) for place in others):
        roles[others[0]], roles[others[1]] = "source", "target"
    if sorted(roles) == sorted(_NAMES):
        dropped["the names of the columns"] += 1
        return (number, roles), lines, Columns(document="document")
    if not cells or (len(cells) != 3 and {"source", "target"} <= set(cells)):
        return first, lines, Columns()
    if len(cells) != 3:
        raise DataError(f"{path}:{number}: {len(cells)} columns, wanted 3: document id, source, target")
    return (number, list(_NAMES)), chain([first], lines), Columns(document="document")


def _parquet(path: Path, columns: Columns) -> Iterator[tuple[str, dict[str, Any]]]:
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
                    yield f"{path}[{number}]", row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: damaged Parquet file ({brief(error)}): row {number + 1}") from None
