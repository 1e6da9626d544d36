"""`decoding.copy_unknown`: copies source words for `<unk>` tokens of a vocabulary without byte fallback."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scaleformer.data.words import spans
from scaleformer.translation.word_alignments import Unit, attention_in_runs, source_words
from scaleformer.vocabulary import EOS, UNK, steps_of

if TYPE_CHECKING:
    from scaleformer.translation.translator import Translator

MARK = "\ue001"  # from the private use area, like the escape character of the tokenizer
_WORD = re.compile(rf"\w*(?:{MARK}\w*)+")


def decode_copying(
    translator: Translator, sources: Sequence[str], tokens: Sequence[int]
) -> tuple[list[tuple[str, int]], int]:
    """The segments of a translation as from `Tokenizer.decode_counted`, and the number of copied words. Each word with
    an `<unk>` is replaced by the source word with the most attention at that token, without punctuation around it.

    Candidates are the words of the source segments that the target segment consumes, or of the whole source if the
    translation does not consume all segments.
    """
    counted = translator.target_tokenizer.counted
    parts: list[list[int]] = [[]]  # target segments with their separators
    for token in tokens:
        if token == EOS:
            break
        parts[-1].append(token)
        if steps_of(token, counted) is not None:
            parts.append([])
    parts = [part for part in parts if part]
    steps = [steps_of(part[-1], counted) or 0 for part in parts]
    units: list[tuple[Sequence[str], list[int]]] = []
    place, waiting = 0, list[int]()
    for part, step in zip(parts, steps, strict=True):
        waiting = waiting + part
        if step:
            units.append((sources[place : place + step], waiting))
            place, waiting = place + step, []
    if place != len(sources) or waiting:
        units = [(sources, [token for part in parts for token in part])]
    encode = translator.source_tokenizer.encode_segments
    words = iter(_looked_at(translator, [Unit(some, encode(some), own, "") for some, own in units if UNK in own]))
    written, count = [], 0
    for part, step in zip(parts, steps, strict=True):
        found = [next(words) for token in part if token == UNK]
        text = translator.target_tokenizer.decode(part, MARK if found else None)
        count += len(_WORD.findall(text)) if found else 0
        written.append((_copied(text, found), step))
    return written, count


def _looked_at(translator: Translator, units: Sequence[Unit]) -> list[str]:
    """The source word for each `<unk>` of the units, "" if there is none."""
    found = []
    for unit, weights in zip(units, attention_in_runs(translator, units), strict=True):
        texts = [text[start:stop] for text in unit.sources for start, stop in spans(text)]
        of_words = weights @ source_words(translator.source_tokenizer, unit.sources)  # (L, source words)
        for place in np.flatnonzero(np.array(unit.target) == UNK):
            found.append(texts[int(of_words[place].argmax())] if texts else "")
    return found


def _copied(text: str, words: Sequence[str]) -> str:
    """A text with its marks replaced by words; of several marks in one word the first decides."""
    rest = iter(words)

    def copy(match: re.Match[str]) -> str:
        first, *_ = [next(rest) for _ in range(match[0].count(MARK))]
        return re.sub(r"^\W+|\W+$", "", first) or first

    return _WORD.sub(copy, text) if words else text
