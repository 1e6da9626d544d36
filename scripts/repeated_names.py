"""Count the identifiers that source and reference of a segment have twice, and those that its translation has, too.

python -m scripts.repeated_names RESULTS/bleu-test.jsonl ...
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NAME = re.compile(r"\b(?:[A-Z][A-Z0-9]*_[A-Z0-9_]+|[a-z]+_[a-z0-9_]+|[a-z]+[A-Z]\w+)\b")  # A_B, a_b and aB


def count(documents: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """How many there are, and how many of them the translations have, of documents as `evaluate` saves them."""
    there = kept = 0
    for document in documents:
        for texts in zip(document["source"], document["target"], document["hypothesis"], strict=True):
            source, reference, translation = (Counter(NAME.findall(text)) for text in texts)
            twice = [name for name, times in source.items() if min(times, reference[name]) > 1]
            there += len(twice)
            kept += sum(translation[name] > 1 for name in twice)
    return there, kept


if __name__ == "__main__":
    for path in sys.argv[1:]:
        there, kept = count(map(json.loads, Path(path).read_text(encoding="utf-8").splitlines()))
        print(f"{path}: {kept} of {there}")
