"""Two line-aligned text files: a segment a line, documents by blank lines, by name or line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.documents import Document, checked


def read_text_pair(
    source: str | Path, target: str | Path, boundaries: str = "blank", ids: str | Path | None = None
) -> Iterator[Document]:
    """Documents of two line-aligned text files, one segment per line.

    boundaries: "blank"  a blank line on both sides ends a document
                "ids"    line n of the file `ids` names the document of line n (as `sacrebleu --echo docid` prints)
                "lines"  every line is a document
    Raises DataError with file and line if the files do not match or a document is wrong.
    """
    name = re.sub(r"\.gz$", "", Path(source).name)
    pending: tuple[list[str], list[str]] = ([], [])
    current = f"{name}:1"
    seen: set[str] = set()
    number = 0
    for number, first, second, label in _aligned_lines(source, target, ids if boundaries == "ids" else None):
        blank = (not first.strip(), not second.strip())
        if boundaries == "blank" and any(blank):
            if not all(blank):
                text, other = (source, target) if blank[0] else (target, source)
                raise DataError(
                    f"{text}:{number}: blank here but not in {other}: end documents at the same line in both"
                )
            if pending[0]:
                yield checked(current, pending, f"{source}:{number}")
            pending = ([], [])
            continue
        if boundaries == "ids":
            if pending[0] and label != current:
                yield checked(current, pending, f"{source}:{number}")
                seen.add(current)
                pending = ([], [])
            if label in seen:
                raise DataError(f"{ids}:{number}: document {shown(label)} began earlier: put its lines together")
            current = label
        elif not pending[0]:
            current = f"{name}:{number}"
        pending[0].append(first)
        pending[1].append(second)
        if boundaries == "lines":
            yield checked(current, pending, f"{source}:{number}")
            pending = ([], [])
    if pending[0]:
        yield checked(current, pending, f"{source}:{number}")


def _aligned_lines(
    source: str | Path, target: str | Path, ids: str | Path | None
) -> Iterator[tuple[int, str, str, str]]:
    """Number, source, target and document name ("" without `ids`) of each line; all files must end together."""
    files = [source, target] if ids is None else [source, target, ids]
    readers = [read_lines(file, "text") for file in files]
    number = 0
    while True:
        lines = [next(reader, None) for reader in readers]
        present = [line is not None for line in lines]
        if not any(present):
            return
        if not all(present):
            short = files[present.index(False)]
            longer = files[present.index(True)]
            raise DataError(f"{short}:{number + 1}: ends after {number} lines, but {longer} is longer: align them")
        number += 1
        texts = [line[1] for line in lines if line is not None]
        yield number, texts[0], texts[1], texts[2] if ids is not None else ""
