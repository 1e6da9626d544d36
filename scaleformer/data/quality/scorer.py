"""Scores of segments by another program, such as Bicleaner or OpusFilter: a command with its own environment."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterable

import numpy as np

from scaleformer.system.errors import DataError


def scores_by(command: str, pairs: Iterable[tuple[str, str]]) -> np.ndarray:
    """A number for each pair of texts: (pairs,).

    The command reads a line of source, tab and target for each on its standard input, and writes a line with a number
    for each on its standard output. Raises DataError if it cannot be run, fails, or writes anything else.
    """
    what = f"filters.scorer={command!r}"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as given, tempfile.TemporaryFile("w+") as written:
        count = 0
        for pair in pairs:
            count += 1
            given.write("\t".join(" ".join(text.split()) for text in pair) + "\n")
        given.seek(0)
        try:
            code = subprocess.run(shlex.split(command), stdin=given, stdout=written).returncode
        except (OSError, ValueError, IndexError) as error:
            raise DataError(f"{what}: cannot be run: {getattr(error, 'strerror', None) or error}") from None
        if code:
            raise DataError(f"{what}: ended with exit code {code}; what it said stands above")
        written.seek(0)
        try:
            scores = np.array([float(line) for line in written], dtype=np.float64)
        except ValueError as error:
            raise DataError(f"{what}: has to write a number on each line: {error}") from None
    if len(scores) != count:
        raise DataError(f"{what}: wrote {len(scores):,} lines for {count:,} segments: one each is wanted")
    return scores
