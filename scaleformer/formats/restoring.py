"""Restores the spans in translated segments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from scaleformer.formats.blocks import MARK, Span
from scaleformer.formats.segments import Segment
from scaleformer.text.placeholders import keeps_placeholders
from scaleformer.vocabulary import PLACEHOLDERS

_PLACEHOLDER = re.compile(f"({'|'.join(PLACEHOLDERS)})")


@dataclass(frozen=True)
class Change:
    """A replacement for text[start:stop] of a block; refused: it lacks placeholders, so that the message of a program
    must stay as it is; given: by a person, whatever it does to the structure of the file; confidence: from 0 to 100,
    None if unknown; unsure: it is too low."""

    start: int
    stop: int
    parts: tuple[str | Span, ...]
    refused: bool = False
    given: bool = False
    confidence: float | None = None
    unsure: bool = False


def restore(segment: Segment, translation: str, counts: Counter[str]) -> Change:
    """The translation of a segment with its spans restored.

    Missing spans are appended, surplus ones dropped. If pairs are separated or become empty, all spans go to their
    relative positions in the source, in words. Each deviation from the model's output is counted.
    """
    pieces: list[str | int] = []
    for piece in _PLACEHOLDER.split(translation):
        if piece not in PLACEHOLDERS:
            pieces += [piece] if piece else []
        elif (number := PLACEHOLDERS.index(piece)) < len(segment.groups) and number not in pieces:
            pieces.append(number)
        else:
            counts["placeholders dropped that the source does not have"] += 1
    missing = [number for number in range(len(segment.groups)) if number not in pieces]
    for number in missing:
        pieces += [" " if segment.spaced[number][0] else "", number]
    source: list[str | int] = [
        PLACEHOLDERS.index(piece) if piece in PLACEHOLDERS else piece for piece in _PLACEHOLDER.split(segment.text)
    ]
    inside, paired = _inside_pairs(segment, pieces), [n for n in pieces if isinstance(n, int) and _ends(segment, n)]
    if inside != _inside_pairs(segment, source) or (inside is None and paired != sorted(paired)):
        pieces = _spread(segment, source, "".join(piece for piece in pieces if isinstance(piece, str)).split())
        counts["segments whose marks the model separated, placed as in the source"] += 1
    elif missing:
        counts["spans moved to the end of their segment"] += len(missing)
    _space_pairs(pieces, segment)
    for i in range(len(pieces) - 1, 0, -1):
        before, after = pieces[i - 1], pieces[i]
        if isinstance(before, int) and isinstance(after, int):
            pieces[i:i] = [" "] if segment.spaced[before][1] and segment.spaced[after][0] else []
    parts = [part for piece in pieces for part in ([piece] if isinstance(piece, str) else segment.groups[piece])]
    return Change(segment.start, segment.stop, tuple(part for part in parts if part != ""))


def _ends(segment: Segment, number: int) -> set[bool]:
    """Whether the spans of a placeholder begin pairs (True) or end them (False)."""
    return {span.opens for span in segment.groups[number] if span.pair is not None}


def _inside_pairs(
    segment: Segment, pieces: Sequence[str | int]
) -> tuple[dict[int, tuple[bool, int]], list[Span]] | None:
    """For each complete pair, whether it contains prose and how many pairs enclose it; and the single ends of other
    pairs, in order. None if pairs cross or end before they begin."""
    spans = [
        (span, place) for place, piece in enumerate(pieces) if isinstance(piece, int) for span in segment.groups[piece]
    ]
    ends = Counter(span.pair for span, _ in spans if span.pair is not None)
    words = [0, *accumulate(isinstance(piece, str) and any(map(str.isalnum, piece)) for piece in pieces)]
    stack: list[tuple[int, int]] = []
    found: dict[int, tuple[bool, int]] = {}
    for span, place in spans:
        if span.pair is None:
            continue
        if span.opens:
            stack.append((span.pair, place))
        elif stack and stack[-1][0] == span.pair:
            _, first = stack.pop()
            found[span.pair] = words[place] > words[first], len(stack)
        elif stack or ends[span.pair] == 2:
            return None
    single = [span for span, _ in spans if span.pair is not None and ends[span.pair] == 1]
    return (found, single) if all(ends[pair] == 1 for pair, _ in stack) else None


def _spread(segment: Segment, source: Sequence[str | int], words: Sequence[str]) -> list[str | int]:
    """Words with the spans at their relative positions in the source, and at least one word in each pair."""
    total = max(1, sum(len(piece.split()) for piece in source if isinstance(piece, str)))
    pieces: list[str | int] = []
    before = written = 0  # numbers of source words and of these words

    def write(until: int) -> None:
        nonlocal written
        for word in words[written:until]:
            if pieces and isinstance(pieces[-1], str) and pieces[-1] != " ":
                pieces.append(" ")
            pieces.append(word)
        written = max(written, min(until, len(words)))

    opened = 0  # number of words written where the innermost pair begins
    for piece in source:
        if isinstance(piece, str):
            before += len(piece.split())
            continue
        pairs = _ends(segment, piece)
        place = round(before / total * len(words))
        if True in pairs:  # leaves a word for the pair that it opens
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
    """Move white space out of pairs if the source has none there: "** bold**" is not emphasis."""
    for i, number in enumerate(pieces):
        if not isinstance(number, int) or len(opens := _ends(segment, number)) != 1:
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


def least(changes: Iterable[Change]) -> tuple[float | None, bool]:
    """The lowest confidence of changes, and whether one of them is unsure."""
    some = list(changes)
    return min((one.confidence for one in some if one.confidence is not None), default=None), any(
        one.unsure for one in some
    )


def find_changes(segments: Sequence[Segment], translations: Sequence[str], counts: Counter[str]) -> list[Change]:
    """The changes of a block by translations of its segments; an identical translation changes nothing, nor does one
    that would change what programs fill in (`keeps_placeholders`), which is counted or, in a message, refused."""
    changes = []
    for segment, translation in zip(segments, translations, strict=True):
        if translation == segment.text:
            continue
        change = restore(segment, translation, counts)
        pieces = _PLACEHOLDER.split(segment.text)
        source = [segment.groups[PLACEHOLDERS.index(p)] if p in PLACEHOLDERS else (p,) for p in pieces]
        if keeps_placeholders(_written(chain(*source)), _written(change.parts), segment.flags):
            changes.append(change)
        elif segment.flags is None:
            counts["segments left as they are, since their translation would change placeholders"] += 1
        else:
            changes.append(replace(change, refused=True))
    return changes


def _written(parts: Iterable[str | Span]) -> str:
    texts = [part.content if isinstance(part, Span) else part for part in parts]
    return "".join(text if isinstance(text, str) else MARK for text in texts)
