"""Splits a text into sentences, paragraphs or lines."""

from __future__ import annotations

import re
from itertools import accumulate, pairwise

from scaleformer.system.errors import DataError

GRAINS = ("sentence", "paragraph", "none")
# No sentence ends in code or at an apostrophe, but sentencex takes text between two apostrophes for a quotation.
_CODE = re.compile(r"(`+).+?\1")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_CLOSING = re.compile(r"(?<=\S)[*_]{1,3}(?: |$)")  # the end of emphasis that encloses a full stop


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


def split_text(text: str, language: str, grain: str) -> list[str]:
    """The segments of a text, each one line.

    grain: "sentence"  sentences by the rules of the language [sentencex]
           "paragraph" the text is a segment
           "none"      each line is a segment
    Raises DataError if sentencex is not installed.
    """
    if grain == "none":
        parts = text.splitlines()
    elif grain == "paragraph":
        parts = [text]
    else:
        text = " ".join(text.split())
        parts = [text[start:stop] for start, stop in pairwise([0, *sentence_ends(text, language)])]
    return [one for part in parts if (one := " ".join(part.split()))]
