"""What an earlier call and its readers made of a file: drafts of its new translation, and segments that stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from scaleformer.formats.blocks import Span
from scaleformer.formats.files import BlockFile
from scaleformer.formats.restoring import Change
from scaleformer.formats.segments import Segment, cut_segment
from scaleformer.system.errors import DataError
from scaleformer.translation.files.record import FileRecord, hash_of_bytes
from scaleformer.translation.files.tasks import FileTask
from scaleformer.translation.files.versions import align_texts, follow_places
from scaleformer.translation.translation_memory import Masked, renumbered
from scaleformer.vocabulary import PLACEHOLDERS

Edits = Literal["keep", "discard"]
_PLACEHOLDER = re.compile(f"({'|'.join(PLACEHOLDERS)})")


def compare(task: FileTask, record: FileRecord, content: bytes | None, edits: Edits) -> None:
    """Set what is known of a file to translate from the record of its translation, and from what that is now (None if
    it is gone). Raises DataError if a person edited it so that it cannot be read."""
    source, old_of = task.segments, align_texts(record.source, task.segments)
    task.record, task.same = record, {n: old for n, old in old_of.items() if record.source[old] == source[n]}
    task.draft = [record.target[old_of[n]] if n in old_of else "" for n in range(len(source))]
    edited = content is not None and hash_of_bytes(content) not in (record.written, record.before)
    pieces: dict[int, Segment | None] = dict.fromkeys(record.by_hand)
    try:
        if content is not None and (edited or pieces):
            file = task.file.read_written(content, str(task.target))
            places = follow_places(record.texts, [block.text for block in file.blocks], record.places)
            pieces.update(_pieces(record, file, places, edited))
            task.lost = edited and edits == "keep" and _frame(file, places) != record.frame
    except DataError as error:
        if edits == "keep":
            raise DataError(f"{error}; edits=discard replaces this translation") from None
    masked = [one for some in task.file.documents for one in some.masked or [Masked(text, ()) for text in some.source]]
    new_of = {old: number for number, old in task.same.items()}
    for old, piece in sorted(pieces.items()):
        number = new_of.get(old)
        if edits == "discard":
            task.discarded.append(number)
        elif number is None:
            task.lost = True
        elif piece is None:
            task.corrected[number] = record.target[old]
        else:
            _correct(task, number, piece, masked[number], record.target[old])


def describe(task: FileTask, content: bytes, now: bytes | None, settings: str) -> FileRecord:
    """The record of a file that is about to have this content, in place of another."""
    hashes = hash_of_bytes(content), "" if now is None else hash_of_bytes(now), settings, task.call
    segments = task.segments, task.texts, sorted(task.corrected)
    texts, places = task.file.expected(task.texts)
    try:
        file = task.file.read_written(content, str(task.target))
    except DataError:  # too large when translated: where it is edited, a copy is kept
        return FileRecord(*hashes, *segments, [], [[] for _ in places], [[] for _ in places], "")
    written = [block.text for block in file.blocks]
    pairs = zip(places, follow_places(texts, written, places), strict=True)
    # what has no translation may be no block there, and another one does not stand for it
    same = [(n, n and written[n[0]][slice(*n[1:])].split() == texts[o[0]][slice(*o[1:])].split()) for o, n in pairs]
    places = [new if stays else [] for new, stays in same]
    kept = [list(cut_segment(file.blocks[place[0]], *place[1:]).kept) if place else [] for place in places]
    return FileRecord(*hashes, *segments, written, places, kept, _frame(file, places))


def _frame(file: BlockFile, places: Sequence[Sequence[int]]) -> str:
    """The hash of a file with all its segments made the same."""
    changes: list[list[Change]] = [[] for _ in file.blocks]
    for number, start, stop in filter(None, places):
        changes[number] += [Change(start, stop, ("x",), given=True)] if start < stop else []
    return hash_of_bytes(file.write(changes))


def _pieces(record: FileRecord, file: BlockFile, places: Sequence[Sequence[int]], edited: bool) -> dict[int, Segment]:
    """The present texts of segments that were edited since the record, or in an earlier call, by their numbers there;
    places: where they are now."""
    found = {}
    for number, (now, place) in enumerate(zip(places, record.places, strict=True)):
        if now:
            block, piece = file.blocks[now[0]], cut_segment(file.blocks[now[0]], *now[1:])
            stays = block.text[slice(*now[1:])] == record.texts[place[0]][slice(*place[1:])]
            if number in record.by_hand or (edited and not (stays and list(piece.kept) == record.kept[number])):
                found[number] = piece
    return found


def _correct(task: FileTask, number: int, piece: Segment, source: Masked, translation: str) -> None:
    """Let a segment have the text of a piece: in the file as it is, and for the model with the placeholders of its
    source where the spans are the same. Spans that are not text are those of its earlier translation. In messages of
    programs all have to stay."""
    text, names = None, _PLACEHOLDER.findall(translation)
    if None not in piece.kept and len(piece.kept) <= len(PLACEHOLDERS):
        shared = renumbered(Masked(piece.text, piece.kept), source)
        text = None if shared is None else shared.text
        if piece.flags is None:
            task.parts[number] = tuple(
                replace(part, content=str(part.content)) if isinstance(part, Span) else part
                for text in _PLACEHOLDER.split(piece.text)
                for part in (piece.groups[PLACEHOLDERS.index(text)] if text in PLACEHOLDERS else (text,))
                if part
            )
            literal = "".join(str(part.content) if isinstance(part, Span) else part for part in task.parts[number])
            text = literal if text is None else text
    elif len(names) == len(piece.kept):
        rest = iter(names)
        text = _PLACEHOLDER.sub(lambda _: next(rest), piece.text)
    if text is None:
        task.lost = True
    else:
        task.corrected[number] = text
