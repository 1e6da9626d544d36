"""The blocks of a document as segments for a model: what is no prose stands in them as placeholders, and comes back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from scaleformer.data.align.sentences import sentence_ends
from scaleformer.data.spans import find_spans
from scaleformer.vocabulary import PLACEHOLDERS

MARK = "\ufffc"  # stands for a span in the text of a block
_PLACEHOLDER = re.compile(f"({'|'.join(PLACEHOLDERS)})")
_SPACES = " \t\n\r\f\v"


@dataclass(frozen=True)
class Span:
    """What stands among prose and is written again as it is.

    content  of whatever kind the format has
    pair     the number of the pair that it begins or ends (emphasis, a link, a tag); None for one that stands alone
    opens    whether it begins the pair
    """

    content: Any
    pair: int | None = None
    opens: bool = False


@dataclass(frozen=True)
class Block:
    """A run of prose that no sentence leaves: a heading, a paragraph, an item, a cell.

    text     with a `MARK` for each of the spans, white space as single spaces
    origins  where each character of the text begins and ends in the content of the file
    """

    text: str
    spans: tuple[Span, ...]
    origins: tuple[tuple[int, int], ...]

    def origin(self, start: int, stop: int) -> tuple[int, int]:
        """Where text[start:stop], not empty, stands in the content of the file."""
        return self.origins[start][0], self.origins[stop - 1][1]


class BlockBuilder:
    """Collects the characters and spans of a block, each with its place in the content of the file."""

    def __init__(self) -> None:
        self._characters: list[tuple[str, int, int]] = []
        self._spans: list[Span] = []

    def text(self, text: str, start: int) -> None:
        """Characters that stand in the file as they are, from `start` on."""
        for place, character in enumerate(text, start):
            self.character(character, place, place + 1)

    def character(self, character: str, start: int, stop: int) -> None:
        """One that the file writes otherwise, `&amp;` for "&"."""
        if character == MARK:
            self.span(character, start, stop)
        else:
            self._characters.append((character, start, stop))

    def span(self, content: Any, start: int, stop: int, pair: int | None = None, opens: bool = False) -> None:
        """What stands at this place instead of prose."""
        self._characters.append((MARK, start, stop))
        self._spans.append(Span(content, pair, opens))

    def build(self) -> Block | None:
        """The block, its URLs, placeholders, ... made spans as well; None where there is no letter in it."""
        parts: list[tuple[str, int, int]] = []
        for space, run in groupby(self._characters, lambda character: character[0] in _SPACES):
            characters = list(run)
            parts += [(" ", characters[0][1], characters[-1][2])] if space else characters
        while parts and parts[0][0] == " ":
            del parts[0]
        while parts and parts[-1][0] == " ":
            del parts[-1]
        text = "".join(character for character, _, _ in parts)
        spans = iter(self._spans)
        found: list[tuple[str, int, int]] = []
        kept: list[Span] = []
        place = 0
        for start, stop in [*find_spans(text), (len(text), len(text))]:
            if MARK in text[start:stop]:
                continue
            kept += [next(spans) for character, _, _ in parts[place:start] if character == MARK]
            found += parts[place:start]
            if start < stop:
                kept.append(Span(text[start:stop]))
                found.append((MARK, parts[start][1], parts[stop - 1][2]))
            place = stop
        text = "".join(character for character, _, _ in found)
        if not any(character.isalpha() for character in text):
            return None
        return Block(text, tuple(kept), tuple((start, stop) for _, start, stop in found))


@dataclass(frozen=True)
class Segment:
    """text[start:stop] of a block as the model reads it.

    text    with placeholders
    groups  the spans that each placeholder stands for: neighbours share one
    spaced  whether white space stands before and behind each of them
    """

    start: int
    stop: int
    text: str
    groups: tuple[tuple[Span, ...], ...]
    spaced: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True)
class Change:
    """What takes the place of text[start:stop] of a block."""

    start: int
    stop: int
    parts: tuple[str | Span, ...]


def split_block(block: Block, language: str, grain: str) -> list[Segment]:
    """The segments of a block, which hold all its letters. grain: sentence | paragraph.

    Spans at the ends that belong to no prose there (marks around the whole sentence) stay outside. A sentence of more
    spans than there are placeholders is cut between them. Raises DataError where sentencex is not installed.
    """
    spans = dict(zip((i for i, c in enumerate(block.text) if c == MARK), block.spans, strict=True))
    ends = [len(block.text)] if grain == "paragraph" else _sentence_ends(block.text, spans, language)
    segments, start = [], 0
    for end in ends:
        while start < end:
            stop = _within_placeholders(block.text, start, end)
            first, last = _trimmed(block.text, spans, start, stop)
            if any(character.isalpha() for character in block.text[first:last]):
                segments.append(_segment(block.text, spans, first, last))
            start = stop
    return segments


def _sentence_ends(text: str, spans: dict[int, Span], language: str) -> list[int]:
    """Where sentences end, by the rules of the language; pairs of marks say nothing to them and go with the prose that
    they enclose."""
    seen = [i for i in range(len(text)) if i not in spans or spans[i].pair is None]
    plain = "".join("X" if text[i] == MARK else text[i] for i in seen)
    ends = []
    for end in sentence_ends(plain, language):
        place = seen[end - 1] + 1
        while place in spans and spans[place].pair is not None and not spans[place].opens:
            place += 1
        ends.append(place)
    return [*ends[:-1], len(text)]


def _within_placeholders(text: str, start: int, end: int) -> int:
    """The end of the longest part of text[start:end] that needs no more placeholders than there are."""
    groups = list(re.finditer(f"{MARK}+", text[start:end]))
    if len(groups) <= len(PLACEHOLDERS):
        return end
    most = start + groups[len(PLACEHOLDERS)].start()
    space = text.rfind(" ", start, most)
    return space + 1 if space > start else most


def _trimmed(text: str, spans: dict[int, Span], start: int, stop: int) -> tuple[int, int]:
    """Without white space at the ends, without pairs around all of it, and without the one mark of those that begin or
    end elsewhere."""
    inside = Counter(spans[i].pair for i in range(start, stop) if i in spans)

    def single(place: int) -> bool:
        return inside[spans[place].pair] == 1

    while start < stop:
        first, last = spans.get(start), spans.get(stop - 1)
        if text[start] == " " or (first and first.pair is not None and first.opens and single(start)):
            start += 1
        elif text[stop - 1] == " " or (last and last.pair is not None and not last.opens and single(stop - 1)):
            stop -= 1
        elif first and last and first.opens and first.pair == last.pair and stop - start > 1:
            start, stop = start + 1, stop - 1
        else:
            break
    return start, stop


def _segment(text: str, spans: dict[int, Span], start: int, stop: int) -> Segment:
    pieces: list[str] = []
    groups: list[tuple[Span, ...]] = []
    spaced: list[tuple[bool, bool]] = []
    for found in re.finditer(f"{MARK}+|[^{MARK}]+", text[start:stop]):
        if found[0][0] != MARK:
            pieces.append(found[0])
            continue
        first, last = start + found.start(), start + found.end()
        pieces.append(PLACEHOLDERS[len(groups)])
        groups.append(tuple(spans[i] for i in range(first, last)))
        spaced.append((text[first - 1 : first] == " ", text[last : last + 1] == " "))
    return Segment(start, stop, "".join(pieces), tuple(groups), tuple(spaced))


def restore(segment: Segment, translation: str, counts: Counter[str]) -> Change:
    """The translation of a segment with its spans in their places.

    One that it lacks is put at its end, one too many is left out, and pairs that it has torn apart stand in the order
    of the source: all three are counted.
    """
    pieces: list[str | int] = []
    for piece in _PLACEHOLDER.split(translation):
        if piece not in PLACEHOLDERS:
            pieces.append(piece)
        elif (number := PLACEHOLDERS.index(piece)) < len(segment.groups) and number not in pieces:
            pieces.append(number)
        else:
            counts["placeholders left out that the source does not have"] += 1
    for number in range(len(segment.groups)):
        if number not in pieces:
            counts["spans put at the end of their segment"] += 1
            pieces += [" " if segment.spaced[number][0] else "", number]
    paired = [i for i, piece in enumerate(pieces) if isinstance(piece, int) and _pairs(segment.groups[piece])]
    order = [piece for i in paired if isinstance(piece := pieces[i], int)]
    if order != sorted(order) and not _is_nested([segment.groups[number] for number in order]):
        counts["pairs of marks put into the order of the source"] += 1
        for i, number in zip(paired, sorted(order), strict=True):
            pieces[i] = number
    _space_pairs(pieces, segment, paired)
    parts = [part for piece in pieces for part in ([piece] if isinstance(piece, str) else segment.groups[piece])]
    return Change(segment.start, segment.stop, tuple(part for part in parts if part != ""))


def _pairs(group: Iterable[Span]) -> bool:
    return any(span.pair is not None for span in group)


def _is_nested(groups: Sequence[Sequence[Span]]) -> bool:
    """Whether every pair is whole and inside the others, as far as both its ends are here."""
    spans = [span for group in groups for span in group if span.pair is not None]
    ends = Counter(span.pair for span in spans)
    stack: list[int | None] = []
    for span in spans:
        if span.opens:
            stack.append(span.pair)
        elif stack and stack[-1] == span.pair:
            stack.pop()
        elif stack or ends[span.pair] == 2:
            return False
    return all(ends[pair] == 1 for pair in stack)


def _space_pairs(pieces: list[str | int], segment: Segment, paired: Sequence[int]) -> None:
    """Move white space out of pairs where the source has none: "** bold**" is no emphasis."""
    for i in paired:
        number = pieces[i]
        assert isinstance(number, int)
        opens = {span.opens for span in segment.groups[number] if span.pair is not None}
        if len(opens) == 2:
            continue
        inner, outer = (i + 1, i - 1) if True in opens else (i - 1, i + 1)
        text = pieces[inner] if 0 <= inner < len(pieces) else ""
        if segment.spaced[number][True in opens] or not isinstance(text, str):
            continue
        cut = text.lstrip(" ") if True in opens else text.rstrip(" ")
        if cut != text and cut:
            pieces[inner] = cut
            if 0 <= outer < len(pieces) and isinstance(beside := pieces[outer], str):
                joined = f"{beside.rstrip(' ')} " if True in opens else f" {beside.lstrip(' ')}"
                pieces[outer] = joined if beside.strip(" ") else beside


def find_changes(segments: Sequence[Segment], translations: Sequence[str], counts: Counter[str]) -> list[Change]:
    """What the translations of a block's segments change in it; a translation that is the segment changes nothing."""
    return [
        restore(segment, translation, counts)
        for segment, translation in zip(segments, translations, strict=True)
        if translation != segment.text
    ]
