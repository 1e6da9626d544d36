"""Bilingual files of several formats, single or all in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scaleformer.formats.folders import find_files
from scaleformer.formats.lines import opened
from scaleformer.formats.recognition import FORMATS, load
from scaleformer.formats.rows import Row, grouped
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, separate


@dataclass(frozen=True)
class Columns:
    """Names of columns; document="": no column names documents. A dot reaches into a column of dictionaries."""

    source: str = "source"
    target: str = "target"
    document: str = ""


@dataclass(frozen=True)
class Bitext:
    """Bilingual files to read.

    format     one that has `rows` in `FORMATS`
    path       a file, or a folder: all its files of the format are read, ordered by name
    columns    csv, tsv, parquet
    languages  tmx: of source and target; "en" also matches "en-XX"; None: srclang of the header or the unit, and the
               only other language of a unit
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
    format = FORMATS[bitext.format]
    for path, name in _files(bitext):
        documents = grouped(read_rows(path, name, bitext, dropped), named=format.columns)
        empty = True
        for document in documents:
            empty = False
            yield from separate(document) if bitext.separate else (document,)
        if empty:
            dropped["files without a translated message"] += 1


def read_rows(path: Path, name: str, bitext: Bitext, dropped: Counter[str]) -> Iterator[Row]:
    """The translated units of a file as rows of the document `name`. Raises DataError with file and line."""
    format = FORMATS[bitext.format]
    if format.prose:
        with opened(path, format.name) as file:
            yield from load(format.prose)(file.read(), str(path)).rows(name, dropped)
    else:
        yield from load(f"{format.rows}.read_rows")(path, name, bitext, dropped)


def _files(bitext: Bitext) -> Iterator[tuple[Path, str]]:
    path = Path(bitext.path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if not path.is_dir():
        yield path, _without_ending(path.name)
        return
    format = FORMATS[bitext.format]
    files = list(find_files(path, [format.name], Counter()))
    if not files:
        raise DataError(f"{path}: no {' or '.join(format.endings)} files below this folder")
    for file in files:
        yield file, _without_ending(file.relative_to(path).as_posix())


def _without_ending(name: str) -> str:
    return Path(name.removesuffix(".gz")).with_suffix("").as_posix()
