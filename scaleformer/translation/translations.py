"""Translations of documents: their hypotheses, and the joining of pieces."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from scaleformer.decoding.config import Mode


@dataclass(frozen=True)
class DocumentHypothesis:
    """One translation of a document.

    segments  one text for each source segment; without match_segments, one for each segment that was written
    shared    places of segments that are empty because the one before translates them, too
    cut       places of source segments whose translation the length limit ended; () without match_segments
    broken    number of characters left out, of which the model wrote some bytes alone

    log_probability, score and finished are as in `search.Hypothesis`.
    """

    segments: tuple[str, ...]
    log_probability: float
    score: float
    finished: bool
    shared: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    broken: int = 0


class Judged(NamedTuple):
    """What is to be expected of a segment: its chrF++, from 0 to 100, and the reasons where it is low."""

    expected: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Translation:
    """The translation of one document: its hypotheses, finished ones first, then by score, and the size of its source.

    source_tokens  with `<sep>` and `</s>`; 0 for a document without text
    judged         the segments of the best hypothesis, None for those without text or not written by the model; () if
                   nobody asked
    unsure         places of those of which too little is expected
    """

    hypotheses: tuple[DocumentHypothesis, ...]
    source_segments: int
    source_tokens: int
    judged: tuple[Judged | None, ...] = ()
    unsure: tuple[int, ...] = ()

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the best hypothesis."""
        return self.hypotheses[0].segments

    @property
    def finished(self) -> bool:
        """False if a length limit cut the best hypothesis."""
        return self.hypotheses[0].finished

    @property
    def cut(self) -> tuple[int, ...]:
        """The source segments whose translation the length limit ended, in the best hypothesis."""
        return self.hypotheses[0].cut


def nothing(segments: int) -> Translation:
    """The translation of a document without text, with this many segments."""
    return Translation((DocumentHypothesis(("",) * segments, 0.0, 0.0, True),), segments, 0)


def join(parts: list[Translation], mode: Mode) -> Translation:
    """The translation of a document from those of its pieces, whose numbers are added. Unless mode is "document", each
    piece is one segment."""
    best = [part.hypotheses[0] for part in parts]
    if mode != "document":
        segments = tuple(" ".join(h.segments) for h in best)
        cut = tuple(place for place, h in enumerate(best) if not h.finished)
    else:
        segments = tuple(segment for h in best for segment in h.segments)
        sources = accumulate((part.source_segments for part in parts), initial=0)
        cut = tuple(start + i for start, h in zip(sources, best, strict=False) for i in h.cut)
    starts = accumulate((len(h.segments) for h in best), initial=0)
    joined = DocumentHypothesis(
        segments,
        sum(h.log_probability for h in best),
        sum(h.score for h in best),
        all(h.finished for h in best),
        () if mode == "segment" else tuple(start + i for start, h in zip(starts, best, strict=False) for i in h.shared),
        cut,
        sum(h.broken for h in best),
    )
    return Translation(
        (joined,), sum(part.source_segments for part in parts), sum(part.source_tokens for part in parts)
    )
