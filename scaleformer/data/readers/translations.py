"""Translations written by `scaleformer translate`, reversed into a corpus for back-translation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scaleformer.data.errors import DataError
from scaleformer.data.readers.documents import Document
from scaleformer.data.readers.lines import read_lines


def read_translations(path: str | Path, dropped: Counter[str]) -> Iterator[Document]:
    """Documents with the translation as source and the translated text as target [Sennrich 2016].

    Documents cut by a length limit, or whose segment count differs from the translation's, are left out and counted.
    Raises DataError with file and line for lines that `translate` did not write.
    """
    for number, line in read_lines(path, "jsonl"):
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
            name, text, translation = record["id"], record["source"], record["hypothesis"]
            finished = record["finished"]
        except (ValueError, TypeError, KeyError) as error:
            missing = f"no {error}" if isinstance(error, KeyError) else "not a JSON object"
            raise DataError(f"{where}: {missing}: wanted the output of translate output=FILE.jsonl") from None
        if not finished:
            dropped["cut by the length limit"] += 1
        elif len(text) != len(translation):
            dropped["another number of segments"] += 1
        else:
            yield Document(str(name), tuple(translation), tuple(text))
