"""What an earlier call and its readers make of a file: drafts of its new translation, and segments that stay."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from scaleformer.formats.blocks import MARK, Block, Span
from scaleformer.formats.files import BlockFile
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Segment, cut_segment
from scaleformer.system.errors import DataError
from scaleformer.translation.files.documents import Opened, ProseFile
from scaleformer.translation.files.record import FileRecord, Place, hash_of_bytes
from scaleformer.translation.files.setup import FileDocument
from scaleformer.translation.files.versions import align_texts, follow_ranges
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.translation_memory import Masked, renumbered
from scaleformer.vocabulary import PLACEHOLDERS

Edits = Literal["keep", "discard"]
_PLACEHOLDER = re.compile(f"({'|'.join(PLACEHOLDERS)})")


class Untold(Exception):
    """A file was edited, and what a person corrected there cannot be told."""


@dataclass
class Earlier:
    """What an earlier translation of a file is good for; numbers of segments are over all its documents.

    record     of that translation
    same       the numbers there of segments that are the same; draft: the translations that segments probably have
    corrected  the texts of segments that a person corrected; parts: how they are written
    discarded  numbers of corrected segments whose corrections are not wanted; -1: the segment is gone, too
    edited     whether the file is not as the program wrote it
    whole      whether all that is wanted of a person's work is in `corrected`
    """

    record: FileRecord
    same: dict[int, int] = field(default_factory=dict)
    draft: list[str] = field(default_factory=list)
    corrected: dict[int, str] = field(default_factory=dict)
    parts: dict[int, tuple[str | Span, ...]] = field(default_factory=dict)
    discarded: list[int] = field(default_factory=list)
    edited: bool = False
    whole: bool = True

    def documents(self, documents: Sequence[FileDocument]) -> Iterator[FileDocument]:
        """The documents of the file with their drafts, and with the corrections as fixed texts."""
        first = 0
        for document in documents:
            stop = first + len(document.source)
            fixed = {n - first: text for n, text in self.corrected.items() if first <= n < stop}
            own = document.forced
            fixed = {n: text for n, text in fixed.items() if n not in own.begin} | dict(own.fixed)
            draft = document.draft or tuple(self.draft[first:stop])
            yield replace(document, forced=ForcedTexts(fixed, own.begin), draft=draft)
            first = stop


def find_earlier(file: Opened, record: FileRecord, content: bytes | None, edits: Edits) -> Earlier:
    """What is known of a file to translate from the record of its translation, and from what that is now (None if it is
    gone). Raises Untold."""
    source = [segment for document in file.documents for segment in document.source]
    same, like = align_texts(record.source, source)
    old = {**like, **same}
    target = record.target
    found = Earlier(record, same, [target[old[n]] if n in old else "" for n in range(len(source))])
    found.edited = content is not None and hash_of_bytes(content) not in (record.written, record.before)
    now = _read(file, content) if content is not None and (found.edited or record.by_hand) else None
    if found.edited and edits == "keep" and (now is None or record.texts is None):
        raise Untold
    pieces = {} if now is None else _pieces(record, now, found)
    by_old = {place: number for number, place in same.items()}
    masked = [one for document in file.documents for one in document.masked]
    for place in sorted({*record.by_hand, *pieces}):
        number = by_old.get(place)
        if edits == "discard":
            found.discarded.append(-1 if number is None else number)
        elif number is None:
            found.whole = False
        elif place in pieces:
            _correct(found, number, pieces[place], masked[number])
        else:
            found.corrected[number] = target[place]
    found.whole |= edits == "discard"
    return found


def describe(file: Opened, content: bytes, record: FileRecord) -> FileRecord:
    """The record of a file with its content, just written, as `find_earlier` compares it."""
    if not isinstance(file, ProseFile) or (written := _read(file, content)) is None:
        return record
    blocks = written.blocks
    wanted = [_expected(*one) for one in zip(file.blocks, file.segments, file.changes, strict=True)]
    same, like = align_texts([text for text, _ in wanted], [block.text for block in blocks])
    block_of = {place: number for number, place in {**like, **same}.items()}
    places: list[Place] = []
    for n, (text, ranges) in enumerate(wanted):
        number = block_of.get(n)
        if number is None:
            places += [()] * len(ranges)
        else:
            places += [(number, *one) for one in follow_ranges(text, blocks[number].text, ranges)]
    kept = tuple(cut_segment(blocks[one[0]], *one[1:]).kept if one else () for one in places)
    texts, frame = tuple(block.text for block in blocks), _frame(written, places)
    return replace(record, texts=texts, places=tuple(places), kept=kept, frame=frame)


def _frame(written: BlockFile, places: Sequence[Place]) -> str:
    """The hash of a file with all its segments made the same."""
    changes: list[list[Change]] = [[] for _ in written.blocks]
    for place in places:
        if place and place[1] < place[2]:
            changes[place[0]].append(Change(place[1], place[2], ("x",), given=True))
    return hash_of_bytes(written.write(changes))


def _read(file: Opened, content: bytes) -> BlockFile | None:
    try:
        return file.read_written(content) if isinstance(file, ProseFile) else None
    except DataError:
        return None


def _expected(
    block: Block, segments: Sequence[Segment], changes: Sequence[Change]
) -> tuple[str, list[tuple[int, int]]]:
    """The text of a block with its changes, and where its segments lie there."""
    by_start = {change.start: change for change in changes if not change.refused}
    text, ranges, place = "", [], 0
    for segment in segments:
        text += block.text[place : segment.start]
        start, place = len(text), segment.stop
        change = by_start.get(segment.start)
        parts = (block.text[segment.start : segment.stop],) if change is None else change.parts
        text += "".join(MARK if isinstance(part, Span) else part for part in parts)
        ranges.append((start, len(text)))
    return text + block.text[place:], ranges


def _pieces(record: FileRecord, written: BlockFile, found: Earlier) -> dict[int, Segment]:
    """The present texts of segments that were edited since the record, or in an earlier call, by their numbers in the
    record. Sets `found.whole`."""
    old, now, places = record.texts or (), written.blocks, list[Place]()
    same, like = align_texts(old, [block.text for block in now])
    now_of = {place: number for number, place in {**like, **same}.items()}
    by_block: dict[int, list[int]] = defaultdict(list)
    for number, place in enumerate(record.places):
        if place:
            by_block[place[0]].append(number)
    pieces, gone = dict[int, Segment](), False
    for n, numbers in by_block.items():
        if n not in now_of:
            gone = True
            continue
        block = now[now_of[n]]
        ranges = [(record.places[number][1], record.places[number][2]) for number in numbers]
        for number, (start, stop), (first, last) in zip(
            numbers, ranges, follow_ranges(old[n], block.text, ranges), strict=True
        ):
            piece = cut_segment(block, first, last)
            places.append((now_of[n], first, last))
            edited = (block.text[first:last], piece.kept) != (old[n][start:stop], record.kept[number])
            if number in record.by_hand or (found.edited and edited):
                pieces[number] = piece
    gone |= any(block.text for n, block in enumerate(now) if n not in {**like, **same})
    found.whole = not gone and _frame(written, places) == record.frame
    return pieces


def _correct(found: Earlier, number: int, piece: Segment, source: Masked) -> None:
    """Let a segment have the text of a piece: for the model with the placeholders of its source where the spans are the
    same, in the file as it is."""
    shared = renumbered(Masked(piece.text, piece.kept), source) if len(piece.kept) <= len(PLACEHOLDERS) else None
    parts = [
        part
        for text in _PLACEHOLDER.split(piece.text)
        for part in (piece.groups[PLACEHOLDERS.index(text)] if text in PLACEHOLDERS else (text,))
    ]
    if None not in piece.kept:  # what stands there holds in every file of the format
        found.parts[number] = tuple(
            replace(part, content=str(part.content)) if isinstance(part, Span) else part for part in parts if part
        )
    elif shared is None:
        found.whole = False
        return
    literal = "".join(str(part.content) if isinstance(part, Span) else part for part in parts)
    found.corrected[number] = literal if shared is None else shared.text
