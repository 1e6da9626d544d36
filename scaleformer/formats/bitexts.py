"""Bilingual files of several formats, single or all in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scaleformer.formats.catalogue_pairs import read_tmx, read_xliff
from scaleformer.formats.po_pairs import read_po
from scaleformer.formats.recognition import FORMATS, by_name
from scaleformer.formats.rows import Row, grouped
from scaleformer.formats.tables import Columns, read_table
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, separate

BITEXTS = ("po", "tmx", "xliff", "csv", "tsv", "parquet")


@dataclass(frozen=True)
class Bitext:
    """Bilingual files to read.

    format     one of BITEXTS
    path       a file, or a folder: all its files of the format are read, ordered by name
    columns    csv, tsv, parquet
    languages  tmx: of source and target; None: those of the file
    separate   every segment is a document
    """

    format: str
    path: str
    columns: Columns = field(default_factory=Columns)
    languages: tuple[str | None, str | None] = (None, None)
    separate: bool = False


def read_bitext(bitext: Bitext, dropped: Counter[str]) -> Iterator[Document]:
    """Documents of a file, or of all files below a folder: one per file, <file> element or name in a column.

    `dropped` counts omitted units by reason, and files without any other unit. Raises DataError in one line, with file
    and line or row.
    """
    for path, name in _files(bitext):
        documents = grouped(_rows(bitext, path, name, dropped), named=bool(bitext.columns.document))
        empty = True
        for document in documents:
            empty = False
            yield from separate(document) if bitext.separate else (document,)
        if empty:
            dropped["files without a translated message"] += 1


def _rows(bitext: Bitext, path: Path, name: str, dropped: Counter[str]) -> Iterator[Row]:
    if bitext.format == "po":
        return read_po(path, name, dropped)
    if bitext.format == "tmx":
        return read_tmx(path, name, bitext.languages, dropped)
    if bitext.format == "xliff":
        return read_xliff(path, name, dropped)
    return read_table(path, bitext.format, name, bitext.columns)


def _files(bitext: Bitext) -> Iterator[tuple[Path, str]]:
    path = Path(bitext.path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if not path.is_dir():
        yield path, _without_ending(path.name)
        return
    format = FORMATS[bitext.format]
    files = sorted(file for file in path.rglob("*") if by_name(file.name) is format and file.is_file())
    if not files:
        raise DataError(f"{path}: no {' or '.join(format.endings)} files below this folder")
    for file in files:
        yield file, _without_ending(file.relative_to(path).as_posix())


def _without_ending(name: str) -> str:
    return str(Path(name.removesuffix(".gz")).with_suffix("").as_posix())
