"""The blocks of a document as segments for a model: what is no prose stands in them as placeholders, and comes back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from scaleformer.data.align.sentences import sentence_ends
from scaleformer.data.spans import find_spans
from scaleformer.vocabulary import PLACEHOLDERS

MARK = "\ufffc"  # stands for a span in the text of a block
_PLACEHOLDER = re.compile(f"({'|'.join(PLACEHOLDERS)})")
_MARKS = re.compile(f"{MARK}+")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^<>]*?(/?)>")
_TWICE = ("**", "__", "***")  # marks that begin and end the same way
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
        self._characters: list[tuple[str, int, int, str]] = []  # with how it is written
        self._spans: list[Span] = []

    def text(self, text: str, start: int) -> None:
        """Characters that stand in the file as they are, from `start` on."""
        for place, character in enumerate(text, start):
            self.character(character, place, place + 1)

    def character(self, character: str, start: int, stop: int, written: str | None = None) -> None:
        """One that the file may write otherwise, `&amp;` for "&"."""
        if character == MARK:
            self.span(character, start, stop)
        else:
            self._characters.append((character, start, stop, written or character))

    def span(self, content: Any, start: int, stop: int, pair: int | None = None, opens: bool = False) -> None:
        """What stands at this place instead of prose."""
        self._characters.append((MARK, start, stop, ""))
        self._spans.append(Span(content, pair, opens))

    def build(self) -> Block | None:
        """The block, its URLs, placeholders, ... made spans as well; None where there is no letter in it."""
        parts: list[tuple[str, int, int, str]] = []
        for space, run in groupby(self._characters, lambda character: character[0] in _SPACES):
            characters = list(run)
            parts += [(" ", characters[0][1], characters[-1][2], " ")] if space else characters
        while parts and parts[0][0] == " ":
            del parts[0]
        while parts and parts[-1][0] == " ":
            del parts[-1]
        text = "".join(part[0] for part in parts)
        spans = iter(self._spans)
        found: list[tuple[str, int, int]] = []
        kept: list[Span] = []
        own: list[int] = []  # those found here
        place = 0
        for start, stop in [*find_spans(text), (len(text), len(text))]:
            if MARK in text[start:stop]:
                continue
            kept += [next(spans) for part in parts[place:start] if part[0] == MARK]
            found += [part[:3] for part in parts[place:start]]
            if start < stop:
                own.append(len(kept))
                kept.append(Span("".join(part[3] for part in parts[start:stop])))
                found.append((MARK, parts[start][1], parts[stop - 1][2]))
            place = stop
        _pair_up(kept, own)
        text = "".join(character for character, _, _ in found)
        if not any(character.isalpha() for character in text):
            return None
        return Block(text, tuple(kept), tuple((start, stop) for _, start, stop in found))


def _pair_up(spans: list[Span], places: Sequence[int]) -> None:
    """Make pairs of the tags and marks at these places that begin and end something."""
    opened: list[tuple[str, int]] = []
    for place in places:
        content = spans[place].content
        tag = _TAG.fullmatch(content)
        name = tag[2] if tag else "[" if content.endswith("[") or content.startswith("](") else content
        ends = bool(tag[1]) if tag else content.startswith("](") or (content in _TWICE and (name in dict(opened)))
        begins = not tag[3] if tag else content in ("[", "![", *_TWICE)
        if ends:
            while opened and name in dict(opened):
                last, first = opened.pop()
                if last == name:
                    spans[first] = Span(spans[first].content, -1 - first, True)
                    spans[place] = Span(content, -1 - first)
                    break
        elif begins:
            opened.append((name, place))


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
    they enclose, and so does a note straight behind a full stop."""
    seen = [
        i for i in range(len(text)) if i not in spans or (spans[i].pair is None and text[max(0, i - 1)] not in ".!?")
    ]
    seen_places = set(seen)
    plain = "".join("X" if text[i] == MARK else text[i] for i in seen)
    ends = []
    for end in sentence_ends(plain, language):
        place = seen[end - 1] + 1
        while place in spans and place not in seen_places and not spans[place].opens:
            place += 1
        ends.append(place)
    return [*ends[:-1], len(text)]


def _within_placeholders(text: str, start: int, end: int) -> int:
    """The end of the longest part of text[start:end] that needs no more placeholders than there are."""
    beyond = next(islice(_MARKS.finditer(text, start, end), len(PLACEHOLDERS), None), None)
    if beyond is None:
        return end
    most = beyond.start()
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

    One that it lacks is put at its end, one too many is left out. Where pairs are torn apart, or nothing is left inside
    one, all spans stand where they do in the source, as shares of its words. What is not as the model wrote it is
    counted.
    """
    pieces: list[str | int] = []
    for piece in _PLACEHOLDER.split(translation):
        if piece not in PLACEHOLDERS:
            pieces += [piece] if piece else []
        elif (number := PLACEHOLDERS.index(piece)) < len(segment.groups) and number not in pieces:
            pieces.append(number)
        else:
            counts["placeholders left out that the source does not have"] += 1
    missing = [number for number in range(len(segment.groups)) if number not in pieces]
    for number in missing:
        pieces += [" " if segment.spaced[number][0] else "", number]
    source: list[str | int] = [
        PLACEHOLDERS.index(piece) if piece in PLACEHOLDERS else piece for piece in _PLACEHOLDER.split(segment.text)
    ]
    inside, paired = (
        _inside_pairs(segment, pieces),
        [n for n in pieces if isinstance(n, int) and _is_paired(segment, n)],
    )
    if inside != _inside_pairs(segment, source) or (inside is None and paired != sorted(paired)):
        pieces = _spread(segment, source, "".join(piece for piece in pieces if isinstance(piece, str)).split())
        counts["segments whose marks the model tore apart, put where they stand in the source"] += 1
    elif missing:
        counts["spans put at the end of their segment"] += len(missing)
    _space_pairs(pieces, segment)
    for i in range(len(pieces) - 1, 0, -1):
        before, after = pieces[i - 1], pieces[i]
        if isinstance(before, int) and isinstance(after, int):
            pieces[i:i] = [" "] if segment.spaced[before][1] and segment.spaced[after][0] else []
    parts = [part for piece in pieces for part in ([piece] if isinstance(piece, str) else segment.groups[piece])]
    return Change(segment.start, segment.stop, tuple(part for part in parts if part != ""))


def _is_paired(segment: Segment, number: int) -> bool:
    return any(span.pair is not None for span in segment.groups[number])


def _inside_pairs(
    segment: Segment, pieces: Sequence[str | int]
) -> tuple[dict[int, tuple[bool, int]], list[Span]] | None:
    """Of each pair whose ends are both here whether there is prose in it, and how many pairs are around it; and the
    ends of other pairs, in order. None where pairs cross or end before they begin."""
    spans = [
        (span, place) for place, piece in enumerate(pieces) if isinstance(piece, int) for span in segment.groups[piece]
    ]
    ends = Counter(span.pair for span, _ in spans if span.pair is not None)
    stack: list[tuple[int, int]] = []
    found: dict[int, tuple[bool, int]] = {}
    for span, place in spans:
        if span.pair is None:
            continue
        if span.opens:
            stack.append((span.pair, place))
        elif stack and stack[-1][0] == span.pair:
            _, first = stack.pop()
            inside = "".join(piece for piece in pieces[first:place] if isinstance(piece, str))
            found[span.pair] = any(map(str.isalnum, inside)), len(stack)
        elif stack or ends[span.pair] == 2:
            return None
    single = [span for span, _ in spans if span.pair is not None and ends[span.pair] == 1]
    return (found, single) if all(ends[pair] == 1 for pair, _ in stack) else None


def _spread(segment: Segment, source: Sequence[str | int], words: Sequence[str]) -> list[str | int]:
    """Words with the spans at the same shares of them as in the source, one word at least in each pair."""
    total = max(1, sum(len(piece.split()) for piece in source if isinstance(piece, str)))
    pieces: list[str | int] = []
    before = written = 0  # words of the source, and of these

    def write(until: int) -> None:
        nonlocal written
        for word in words[written:until]:
            if pieces and isinstance(pieces[-1], str) and pieces[-1] != " ":
                pieces.append(" ")
            pieces.append(word)
        written = max(written, min(until, len(words)))

    opened = 0  # words that are written where the innermost pair begins
    for piece in source:
        if isinstance(piece, str):
            before += len(piece.split())
            continue
        pairs = {span.opens for span in segment.groups[piece] if span.pair is not None}
        place = round(before / total * len(words))
        if True in pairs:  # leaves a word for what it opens
            place = min(place, len(words) - 1)
        elif pairs:
            place = max(place, opened + 1)
        write(place)
        if pieces and pieces[-1] != " " and pairs != {False} and (segment.spaced[piece][0] or True in pairs):
            pieces.append(" ")
        pieces.append(piece)
        if pairs != {True} and written < len(words) and (segment.spaced[piece][1] or pairs == {False}):
            pieces.append(" ")
        opened = written if True in pairs else opened
    write(len(words))
    return pieces


def _space_pairs(pieces: list[str | int], segment: Segment) -> None:
    """Move white space out of pairs where the source has none: "** bold**" is no emphasis."""
    for i, number in enumerate(pieces):
        opens = (
            {span.opens for span in segment.groups[number] if span.pair is not None} if isinstance(number, int) else {}
        )
        if len(opens) != 1 or not isinstance(number, int):
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
