"""Translations written by `scaleformer translate`, reversed into a corpus for back-translation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document


def read_translations(path: str | Path, dropped: Counter[str], segments: Counter[str]) -> Iterator[Document]:
    """Documents with the translation as source and the translated text as target [Sennrich 2016].

    Segments that a length limit cut are left out and counted in `segments`; in `dropped`, documents that it cut in
    every segment or in unknown ones, and those whose segment count differs from the translation's.
    Raises DataError with file and line for lines that `translate` did not write.
    """
    for number, line in read_lines(path, "jsonl"):
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
            name, text, translation = record["id"], record["source"], record["hypothesis"]
            finished, cut = record["finished"], set(record.get("cut", ()))
        except (ValueError, TypeError, KeyError) as error:
            missing = f"no {error}" if isinstance(error, KeyError) else "not a JSON object"
            raise DataError(f"{where}: {missing}: wanted the output of translate output=FILE.jsonl") from None
        if len(text) != len(translation):
            dropped["cut by the length limit" if not finished else "another number of segments"] += 1
        elif not finished and len(cut) in (0, len(text)):
            dropped["cut by the length limit"] += 1
        else:
            segments["cut by the length limit"] += len(cut)
            kept = [place for place in range(len(text)) if place not in cut]
            yield Document(str(name), *(tuple(side[place] for place in kept) for side in (translation, text)))
