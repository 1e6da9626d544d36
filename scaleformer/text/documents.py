"""A document: aligned segments of a source and a target text, and the beads that say which belong together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

#: What is one example, or one line of a score.
Level = Literal["document", "segment"]
LEVELS: tuple[Level, ...] = get_args(Level)
Beads = tuple[tuple[int, int], ...]  # counts of source and target segments per bead, () where all match one to one


@dataclass(frozen=True)
class Document:
    """Aligned segments of a source and a target text, in order.

    id      name in reports and outputs
    source  segments
    target  segments, none at all if the translation is unknown
    labels  facts about single words (`scaleformer.data.synthetic.corpus.Label`), for scoring
    beads   numbers of source and target segments that belong together, in order: (2, 1) two and one, (0, 1) one without
            a source; () if all segments match one to one
    """

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...] = ()
    labels: tuple[Any, ...] = ()
    beads: Beads = ()

    def to_json(self) -> str:
        """The document as a line of JSON Lines, without the labels and without a newline."""
        record: dict[str, Any] = {"id": self.id, "source": self.source, "target": self.target}
        return json.dumps(record | ({"beads": self.beads} if self.beads else {}), ensure_ascii=False)

    @property
    def shapes(self) -> Beads:
        """The beads, also if all segments match one to one; without a target, each has no target segment."""
        return self.beads or ((1, 1 if self.target else 0),) * len(self.source)

    def parts(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The source and target segments of each bead."""
        found, source, target = [], 0, 0
        for s, t in self.shapes:
            found.append((self.source[source : source + s], self.target[target : target + t]))
            source, target = source + s, target + t
        return found

    def one_to_one(self) -> Document:
        """The document with one segment per bead on either side, its segments joined by spaces: for scoring."""
        if not self.beads:
            return self
        source, target = zip(*((" ".join(s), " ".join(t)) for s, t in self.parts()), strict=True)
        return replace(self, source=source, target=target, beads=())


def from_parts(id: str, parts: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Document:
    """The document with these `Document.parts`."""
    beads = tuple((len(source), len(target)) for source, target in parts)
    source, target = (tuple(segment for part in parts for segment in part[side]) for side in (0, 1))
    return Document(id, source, target, beads=() if all(bead == (1, 1) for bead in beads) else beads)


def one_line(segments: Sequence[str]) -> str:
    """A document as one line: segments joined by spaces, line breaks turned into spaces, empty ones left out."""
    return " ".join(line for segment in segments for line in segment.splitlines() if line)


def check_document(document: Document, where: str, has_target: bool = True) -> None:
    """Raise DataError unless the document has segments, equally many on both sides, and is valid Unicode."""
    if not document.source and not document.target:
        raise DataError(f"{where}: document {shown(document.id)} is empty: it has no segments")
    if has_target and not document.beads and len(document.source) != len(document.target):
        raise DataError(
            f"{where}: document {shown(document.id)} has {len(document.source)} source segments and "
            f'{len(document.target)} target segments: align them one to one, or say which belong together in "beads"'
        )
    for text in (document.id, *document.source, *document.target):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(f"{where}: document {shown(document.id)} has a lone surrogate (\\ud800-\\udfff)") from None


def check_beads(beads: Sequence[Sequence[int]], source: int, target: int) -> str | None:
    """Describe the first fault in the beads of a document with these numbers of segments; None if there is none."""
    for number, bead in enumerate(beads):
        if len(bead) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in bead):
            return f"bead {number} is {list(bead)}: wanted [source segments, target segments], 0 or more of each"
        if not any(bead):
            return f"bead {number} is [0, 0]: leave it out"
    sums = [sum(bead[side] for bead in beads) for side in (0, 1)]
    if sums != [source, target]:
        return f"its beads hold {sums[0]} source and {sums[1]} target segments, the document has {source} and {target}"
    return None


def separate(document: Document) -> Iterator[Document]:
    """Each segment of a document, or bead, as a separate document."""
    for number, part in enumerate(document.parts(), 1):
        yield from_parts(f"{document.id}:{number}", [part])
