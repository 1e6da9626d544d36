"""The translations that `scaleformer translate` has written, as a corpus turned round: for back-translation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scaleformer.data.errors import DataError
from scaleformer.data.readers.documents import Document
from scaleformer.data.readers.lines import read_lines


def read_translations(path: str | Path, dropped: Counter[str]) -> Iterator[Document]:
    """Documents whose source is the translation, and whose target is the text that was translated [Sennrich 2016].

    Documents that a length limit cut, or whose translation has another number of segments, are left out and counted.
    Raises DataError with file and line for what is no translation.
    """
    for number, line in read_lines(path, "jsonl"):
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
            name, text, translation = record["id"], record["source"], record["hypothesis"]
            finished = record["finished"]
        except (ValueError, TypeError, KeyError) as error:
            missing = f"no {error}" if isinstance(error, KeyError) else "not an object of JSON"
            raise DataError(f"{where}: {missing}: wanted what translate writes to a name in .jsonl") from None
        if not finished:
            dropped["cut by the length limit"] += 1
        elif len(text) != len(translation):
            dropped["another number of segments"] += 1
        else:
            yield Document(str(name), tuple(translation), tuple(text))
