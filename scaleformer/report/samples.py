"""Saved translations (`bleu-SPLIT.jsonl`) as HTML, with those of several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.saved_translations import TranslatedDocument, read_translations
from scaleformer.report import html

Key = tuple[str, Sequence[str]]


def side_by_side(files: Mapping[str, Path], count: int, segments: int) -> str:
    """The first `count` documents of each file, side by side with those of other runs that have them; "" without any.

    files     name of a run -> its translations, one document per line
    segments  most per document. Raises ValueError for a file of the wrong kind.
    """
    read = {name: _documents(path) for name, path in files.items()}
    parts = []
    for key in dict.fromkeys(key for found in read.values() for key in list(found)[:count]):
        having = [name for name, found in read.items() if key in found]
        first = read[having[0]][key]
        reference = first.target
        hypotheses = [align_segments(read[name][key].hypothesis, reference)[:segments] for name in having]
        columns = (first.source[:segments], reference[:segments], *hypotheses)  # segment counts may differ
        rows = list(zip_longest(*columns, fillvalue=""))
        size = f"{len(reference)} segment{'s' if len(reference) > 1 else ''}"
        cut = f", the first {segments} shown" if len(reference) > segments else ""
        parts.append(f"<h3><bdi>{html.escape(key[0])}</bdi> ({size}{cut})</h3>")
        parts.append(html.samples(["source", "reference", *having], rows))
    return "".join(parts)


def _documents(path: Path) -> dict[Key, TranslatedDocument]:
    """The documents of a file by id and source; {} without one."""
    documents = read_translations(path) if path.is_file() else []
    return {(document.id, tuple(document.source)): document for document in documents}
