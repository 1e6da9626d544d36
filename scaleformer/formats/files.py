"""Files with prose: what the class of a format has to offer, and the one way to their blocks and segments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Protocol

from scaleformer.formats.blocks import Block, Span
from scaleformer.formats.recognition import FORMATS, load
from scaleformer.formats.restoring import Change, find_changes
from scaleformer.formats.rows import Row
from scaleformer.formats.segments import Segment, split_block
from scaleformer.formats.splicing import plain
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.spans import mask_pair
from scaleformer.vocabulary import PLACEHOLDERS

KNOWN = 1000  # translated units of a file that help the others: each costs time in every step
_HALF = re.compile("[\ud800-\udfff]")
_PLACEHOLDERS = re.compile("|".join(PLACEHOLDERS))


class BlockFile(Protocol):
    """A file of one of the formats: its prose, counts of what stays untranslated by reason, and a writer for changed
    blocks."""

    blocks: list[Block]
    left: Counter[str]

    def __init__(self, content: bytes, name: str) -> None: ...

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes: ...


def read_prose(
    content: bytes, name: str, format: str, language: str, grain: str, target: str = "", written: bool = False
) -> tuple[BlockFile, list[list[Segment]]]:
    """A file and the segments of each of its blocks, to train on and to translate.

    format  a name of `FORMATS`
    grain   as in `split_block`; "none" also makes each line of a plain text a block
    target  the language of the translation, if it is known, which web pages, books and XLIFF name
    written whether to read the translations that a catalogue has, not what it has to translate
    Raises DataError if it is not a sound file of the format.
    """
    kind = load(FORMATS[format].prose)
    given = {"by_line": grain == "none", "format": format, "language": target, "written": written}
    file: BlockFile = kind(content, name, **{key: given[key] for key in signature(kind).parameters if key in given})
    for block in file.blocks:
        if _HALF.search(block.text):
            raise DataError(f"{name}: half a character (\\ud800-\\udfff) in {shown(block.text)}: correct its escape")
    grain = "paragraph" if FORMATS[format].whole or written else grain
    return file, [split_block(block, language, grain) for block in file.blocks]


def known_pairs(file: BlockFile, name: str) -> tuple[tuple[str, str], ...]:
    """Sources and translations of the units of a PO or XLIFF file that are translated, masked as in training; of other
    files none. Of more than `KNOWN` units the last ones; `left` counts the others."""
    rows: list[Row] = []
    try:
        for row in file.rows(name, Counter()) if file.blocks and hasattr(file, "rows") else ():
            rows.append(row)
    except DataError as error:  # no reason not to translate the others
        file.left[f"fault after which translated units do not help the others ({error})"] = 1
    if len(rows) > KNOWN:
        file.left[f"translated units before the last {KNOWN:,}, whose words do not help the others"] = len(rows) - KNOWN
    return tuple(mask_pair(" ".join(row.source), " ".join(row.target)) for row in rows[-KNOWN:])


def write_prose(
    file: BlockFile, segments: Sequence[Sequence[Segment]], texts: Sequence[str], counts: Counter[str]
) -> bytes:
    """The content of a file with the translations of all its segments in order; counts what could not be translated or
    placed, by reason."""
    content = file.write(prose_changes(segments, texts, counts))
    counts.update(file.left)
    return content


def prose_changes(
    segments: Sequence[Sequence[Segment]],
    texts: Sequence[str],
    counts: Counter[str],
    given: Mapping[int, tuple[str | Span, ...]] | None = None,
    told: Mapping[int, tuple[float, bool]] | None = None,
) -> list[list[Change]]:
    """The changes of each block by the translations of its segments. given: what is written for segments, by their
    numbers in the file, whatever their translations; told: the confidence of segments, by their numbers, and whether it
    is too low."""
    rest = iter(enumerate(texts))
    changes = []
    for some in segments:
        found: list[str] = []
        own: list[Change] = []
        here = {}
        for segment in some:
            number, text = next(rest, (-1, ""))
            here[segment.start] = (told or {}).get(number, (None, False))
            if given and number in given:
                own.append(Change(segment.start, segment.stop, given[number], given=True))
                text = segment.text
            if text != segment.text and not _PLACEHOLDERS.sub("", text := plain(text).strip()).strip():
                counts["segments without a translation left as they are"] += 1
                text = segment.text
            found.append(text)
        for change in find_changes(some, found, counts):
            confidence, unsure = here[change.start]
            own.append(replace(change, confidence=confidence, unsure=unsure))
        changes.append(sorted(own, key=lambda change: change.start))
    return changes
