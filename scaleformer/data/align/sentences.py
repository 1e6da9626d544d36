"""Splits blocks into segments, at the grain for alignment and training."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate, pairwise

from scaleformer.data.align.blocks import KINDS, Block
from scaleformer.data.errors import DataError

GRAINS = ("sentence", "paragraph", "none")
# No sentence ends in code or at an apostrophe, but sentencex takes text between two apostrophes for a quotation.
_CODE = re.compile(r"(`+).+?\1")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_CLOSING = re.compile(r"(?<=\S)[*_]{1,3}(?: |$)")  # the end of emphasis that encloses a full stop
LABELS = (*KINDS, "inside")  # the kind of block that a segment begins, or "inside" for none


def split_blocks(blocks: Iterable[Block], language: str, grain: str) -> tuple[list[str], list[int]]:
    """The segments of blocks, each one line, and their labels, as indices of `LABELS`.

    grain: "sentence"  sentences by the rules of the language [sentencex]
           "paragraph" each block is a segment
           "none"      each line is a segment
    Raises DataError if sentencex is not installed.
    """
    segments, labels = [], []
    for block in blocks:
        for number, part in enumerate(_parts(block.text, language, grain)):
            segments.append(part)
            labels.append(LABELS.index("inside" if number else block.kind))
    return segments, labels


def sentence_ends(text: str, language: str) -> list[int]:
    """The ends of the sentences in a text (one line with single spaces), including the space after each.

    Raises DataError if sentencex is not installed.
    """
    try:
        import sentencex
    except ImportError:
        message = "split=sentence needs sentencex: pip install 'scaleformer[documents]' (or split=paragraph)"
        raise DataError(message) from None
    masked = _APOSTROPHE.sub("\u2019", _CODE.sub(lambda code: "X" * len(code[0]), text))
    ends = accumulate(map(len, sentencex.segment(language, masked)))
    return [closing.end() if (closing := _CLOSING.match(text, end)) else end for end in ends]


def _parts(text: str, language: str, grain: str) -> list[str]:
    if grain == "none":
        parts = text.splitlines()
    elif grain == "paragraph":
        parts = [text]
    else:
        text = " ".join(text.split())
        parts = [text[start:stop] for start, stop in pairwise([0, *sentence_ends(text, language)])]
    return [one for part in parts if (one := " ".join(part.split()))]
