"""Two line-aligned text files: a segment a line, documents by blank lines, by name or line by line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from scaleformer.formats.lines import read_lines
from scaleformer.formats.rows import Row, grouped
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document


def read_text_pair(
    source: str | Path, target: str | Path, boundaries: str = "blank", ids: str | Path | None = None
) -> Iterator[Document]:
    """Documents of two line-aligned text files, one segment per line.

    boundaries: "blank"  a blank line on both sides ends a document
                "ids"    line n of the file `ids` names the document of line n (as `sacrebleu --echo docid` prints)
                "lines"  every line is a document
    Raises DataError with file and line if the files do not match or a document is wrong.
    """
    return grouped(_rows(source, target, boundaries, ids), named=boundaries == "ids")


def _rows(source: str | Path, target: str | Path, boundaries: str, ids: str | Path | None) -> Iterator[Row]:
    files = [source, target, *([ids] if boundaries == "ids" and ids is not None else [])]
    document = ""
    for number, lines in enumerate(zip_longest(*(read_lines(file, "text") for file in files)), 1):
        if None in lines:
            longer = next(file for file, line in zip(files, lines, strict=True) if line is not None)
            short = f"{files[lines.index(None)]}:{number}"
            raise DataError(f"{short}: ends after {number - 1} lines, but {longer} is longer: align them")
        first, second, *label = (text for _, text in lines)
        blank = not first.strip(), not second.strip()
        if boundaries == "blank" and any(blank):
            if not all(blank):
                text, other = (source, target) if blank[0] else (target, source)
                where = f"{text}:{number}"
                raise DataError(f"{where}: blank here but not in {other}: end documents at the same line in both")
            document = ""
            continue
        if label:
            document = label[0]
        elif boundaries == "lines" or not document:
            document = f"{Path(source).name.removesuffix('.gz')}:{number}"
        yield Row(f"{ids if label else source}:{number}", document, (first,), (second,))
