"""Blocks of a document as segments for a model, with placeholders for everything but prose."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from scaleformer.formats.blocks import MARK, SPACES, Block, Span
from scaleformer.text.sentences import sentence_ends
from scaleformer.text.spans import mask
from scaleformer.vocabulary import PLACEHOLDERS

Grain = Literal["sentence", "paragraph", "none"]
Kept = tuple[str | None, ...]
_MARKS = re.compile(f"{MARK}+")
_PLACEHOLDER = re.compile("|".join(PLACEHOLDERS))


@dataclass(frozen=True)
class Segment:
    """text[start:stop] of a block as the model reads it.

    text    with placeholders
    groups  the spans of each placeholder: adjacent spans share one
    spaced  whether there is white space before and after each of them
    flags   of its block
    """

    start: int
    stop: int
    text: str
    groups: tuple[tuple[Span, ...], ...]
    spaced: tuple[tuple[bool, bool], ...]
    flags: frozenset[str] | None = None

    @property
    def kept(self) -> Kept:
        """The text behind each placeholder; None if it is not text."""
        texts = ([span.content for span in spans] for spans in self.groups)
        return tuple("".join(some) if all(isinstance(text, str) for text in some) else None for some in texts)

    @property
    def unmasked(self) -> str:
        """The text as a corpus to train on has it: with its spans, which `data.mask_spans` masks."""

        def shown(found: re.Match[str]) -> str:
            spans = self.groups[PLACEHOLDERS.index(found[0])]
            return "".join(span.content if span.shown is None else span.shown for span in spans)

        return re.sub(f"[{SPACES}]+", " ", _PLACEHOLDER.sub(shown, self.text)).strip(" ")


def split_block(block: Block, language: str, grain: str) -> list[Segment]:
    """The segments of a block, which contain all its letters outside spans. grain: of `Grain`; all but sentence keep it
    whole.

    Spans around the whole segment, such as marks around a sentence, stay outside. A sentence with more spans than
    there are placeholders is split between them. Raises DataError if sentencex is not installed.
    """
    spans = _by_place(block)
    ends = _sentence_ends(block.text, spans, language) if grain == "sentence" else [len(block.text)]
    segments, start = [], 0
    for end in ends:
        while start < end:
            stop = _within_placeholders(block.text, start, end)
            first, last = _trimmed(block.text, spans, start, stop)
            if any(character.isalpha() for character in block.text[first:last]):
                segments.append(replace(_segment(block.text, spans, first, last), flags=block.flags))
            start = stop
    return segments


def cut_segment(block: Block, start: int, stop: int) -> Segment:
    """text[start:stop] of a block as a segment."""
    return replace(_segment(block.text, _by_place(block), start, stop), flags=block.flags)


def _by_place(block: Block) -> dict[int, Span]:
    return dict(zip((i for i, c in enumerate(block.text) if c == MARK), block.spans, strict=True))


def _sentence_ends(text: str, spans: dict[int, Span], language: str) -> list[int]:
    """Where sentences end by the rules of the language. Pairs of marks do not influence them and stay with the prose
    that they enclose, like a note right after a full stop."""
    # Other spans stay as `MARK`: a letter in their place would be an initial, after which a full stop ends nothing.
    seen = [
        i for i in range(len(text)) if i not in spans or (spans[i].pair is None and text[max(0, i - 1)] not in ".!?")
    ]
    seen_places = set(seen)
    ends = []
    prose = "".join(text[i] for i in seen).replace("![", "[[")  # no sentence ends within ![an image
    for end in sentence_ends(prose, language):
        place = seen[end - 1] + 1
        while place in spans and place not in seen_places and not spans[place].opens:
            place += 1
        ends.append(place)
    return [*ends[:-1], len(text)]


def _within_placeholders(text: str, start: int, end: int) -> int:
    """The end of the longest part of text[start:end] for which the placeholders suffice."""
    beyond = next(islice(_MARKS.finditer(text, start, end), len(PLACEHOLDERS), None), None)
    if beyond is None:
        return end
    most = beyond.start()
    space = text.rfind(" ", start, most)
    return space + 1 if space > start else most


def _trimmed(text: str, spans: dict[int, Span], start: int, stop: int) -> tuple[int, int]:
    """The range without white space and what cannot be seen at the ends, pairs around all of it, and single marks of
    pairs that begin or end elsewhere."""
    inside = Counter(spans[i].pair for i in range(start, stop) if i in spans)

    def single(place: int) -> bool:
        return inside[spans[place].pair] == 1

    while start < stop:
        first, last = spans.get(start), spans.get(stop - 1)
        if text[start].isspace() or (first and first.pair is not None and first.opens and single(start)):
            start += 1
        elif last and last.changed:
            break
        elif first and first.pair is None and first.shown == "":
            start += 1
        elif text[stop - 1].isspace() or (
            last and (last.shown == "" if last.pair is None else not last.opens and single(stop - 1))
        ):
            stop -= 1
        elif first and last and first.opens and first.pair == last.pair and stop - start > 1:
            start, stop = start + 1, stop - 1
        else:
            break
    return start, stop


def _segment(text: str, spans: dict[int, Span], start: int, stop: int) -> Segment:
    places = [found.span() for found in _MARKS.finditer(text, start, stop)]
    inside = [(first - start, last - start) for first, last in places]
    masked = mask(text[start:stop], zip(inside, PLACEHOLDERS, strict=False))
    groups = tuple(tuple(spans[i] for i in range(*place)) for place in places)
    spaced = tuple((text[first - 1 : first] == " ", text[last : last + 1] == " ") for first, last in places)
    return Segment(start, stop, masked, groups, spaced)
