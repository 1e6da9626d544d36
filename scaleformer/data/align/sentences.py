"""Blocks as segments: the grain at which texts are aligned and models trained."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate, pairwise

from scaleformer.data.align.blocks import KINDS, Block
from scaleformer.data.errors import DataError

GRAINS = ("sentence", "paragraph", "none")
# No sentence ends in code or at an apostrophe, but the rules take what stands between two of these for a quotation.
_CODE = re.compile(r"(`+).+?\1")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
LABELS = (*KINDS, "inside")  # what a segment begins: a block of this kind, or none


def split_blocks(blocks: Iterable[Block], language: str, grain: str) -> tuple[list[str], list[int]]:
    """The segments of blocks, each one line, and their labels, numbers of `LABELS`.

    grain: "sentence"  as the rules of the language divide a block [sentencex]
           "paragraph" a block is a segment
           "none"      a line is a segment
    Raises DataError where sentencex is not installed.
    """
    segments, labels = [], []
    for block in blocks:
        for number, part in enumerate(_parts(block.text, language, grain)):
            segments.append(part)
            labels.append(LABELS.index("inside" if number else block.kind))
    return segments, labels


def sentence_ends(text: str, language: str) -> list[int]:
    """Where the sentences of a text end, white space behind them included; it is a line with single spaces.

    Raises DataError where sentencex is not installed.
    """
    try:
        import sentencex
    except ImportError:
        message = "split=sentence needs sentencex: pip install 'scaleformer[documents]' (or split=paragraph)"
        raise DataError(message) from None
    masked = _APOSTROPHE.sub("\u2019", _CODE.sub(lambda code: "X" * len(code[0]), text))
    return list(accumulate(map(len, sentencex.segment(language, masked))))


def _parts(text: str, language: str, grain: str) -> list[str]:
    if grain == "none":
        parts = text.splitlines()
    elif grain == "paragraph":
        parts = [text]
    else:
        text = " ".join(text.split())
        parts = [text[start:stop] for start, stop in pairwise([0, *sentence_ends(text, language)])]
    return [one for part in parts if (one := " ".join(part.split()))]
