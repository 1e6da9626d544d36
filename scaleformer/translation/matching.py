"""Which source segments the segments of a translation translate, by its separators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from scaleformer.decoding.config import DecodingConfig
from scaleformer.vocabulary import SEP, steps_of


def by_source(written: Sequence[tuple[str, int]]) -> tuple[list[str], list[int]]:
    """Assign target segments to source segments.

    written  the text of each target segment, and the number of source segments that it consumes

    Returns the text for each source segment, and the places of those whose text is empty because the one before
    translates them, too. Several target segments for one source segment are joined by a space.
    """
    segments: list[str] = []
    shared: list[int] = []
    texts: list[str] = []
    for text, consumed in written:
        texts.append(text)
        if consumed:
            segments.append(" ".join(texts))
            shared += range(len(segments), len(segments) + consumed - 1)
            segments += [""] * (consumed - 1)
            texts = []
    return ([*segments, " ".join(texts)] if texts else segments), shared


def cut_segments(
    source: Sequence[int], written: Sequence[int], forced: Mapping[int, Sequence[int]], config: DecodingConfig
) -> tuple[int, ...]:
    """The source segments that a translation lacks or has in part, after a length limit ended it: those whose
    translation has as many tokens as the limit allows, and those without any.

    source   tokens of the document, `<sep>` after each segment
    written  tokens of its translation, without `</s>`
    forced   the tokens with which the translations of source segments begin, as in `search.decode`
    """
    ends = [place for place, token in enumerate(source) if token == SEP]
    sizes = torch.tensor(ends, dtype=torch.long).diff(prepend=torch.tensor([-1])) - 1
    limits = config.limit(sizes).tolist()
    found, segment, length = [], 0, 0
    for token in written:
        steps = steps_of(token)
        if not steps:  # words, and what ends a target segment for the same source segment
            length += 1
            continue
        first = forced.get(segment, ())
        if token == SEP and SEP not in first and length >= max(limits[segment], len(first)):
            found.append(segment)
        segment, length = segment + steps, 0
    return (*found, *range(segment, len(ends)))
