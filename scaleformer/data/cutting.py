"""Cuts and joins documents into examples at segment boundaries. A bead counts as one segment here.

A plan says which segments form an example; every kept segment is in exactly one example of a plan.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scaleformer.data.encoded import EncodedCorpus
from scaleformer.system.errors import DataError
from scaleformer.vocabulary import SEPARATORS

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """Examples as runs of segment numbers: example n holds order[bounds[n]:bounds[n + 1]].

    source_lengths, target_lengths  (examples,) tokens, including the separators, the tag and the `</s>`
    """

    order: Ints
    bounds: Ints
    source_lengths: Ints
    target_lengths: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def segments(self, example: int) -> Ints:
        """The segment numbers of an example, in order."""
        return self.order[self.bounds[example] : self.bounds[example + 1]]


@dataclass(frozen=True)
class Cutting:
    """How documents become examples; the fields are those of `DataConfig`."""

    max_tokens: int
    multi_resolution: bool = False
    join_segments: tuple[int, int] | None = None
    max_ratio: float | None = None
    overlong: str = "keep"
    level: str = "document"


def has_empty_side(corpus: EncodedCorpus) -> NDArray[np.bool_]:
    """(segments,) whether one side has only separators; for a bead, in all its segments on that side."""
    found = np.zeros(corpus.segments, dtype=np.bool_)
    for side, offsets, lengths in (
        (corpus.source, corpus.source_offsets, corpus.source_lengths),
        (corpus.target, corpus.target_offsets, corpus.target_lengths),
    ):
        found |= lengths <= 1
        for bead in np.flatnonzero(~corpus.single & (lengths > 1)).tolist():
            tokens = side[offsets[bead] : offsets[bead + 1]]
            found[bead] |= bool(np.isin(tokens, SEPARATORS).all())
    return found


def kept_segments(corpus: EncodedCorpus, max_ratio: float | None, level: str = "document") -> Ints:
    """Numbers of the segments whose token counts, separators included, differ by at most the factor `max_ratio`;
    level="segment" also excludes segments with an empty side."""
    if level == "segment":
        filled = np.flatnonzero(~has_empty_side(corpus))
        return filled if max_ratio is None else np.intersect1d(filled, kept_segments(corpus, max_ratio))
    if max_ratio is None:
        return np.arange(corpus.segments)
    source, target = corpus.source_lengths, corpus.target_lengths
    return np.flatnonzero(np.maximum(source, target) <= max_ratio * np.minimum(source, target))


def make_plan(corpus: EncodedCorpus, cutting: Cutting, rng: np.random.Generator) -> Plan:
    """Cut or join the segments of a corpus into examples of at most `max_tokens` on either side.

    With level="segment" each segment is an example. rng draws for multi_resolution and join_segments; without these
    every example is as long as possible. A single segment beyond max_tokens becomes its own example, or raises
    DataError with overlong="error".
    """
    order = kept_segments(corpus, cutting.max_ratio, cutting.level)
    check_overlong(corpus, order, cutting)
    if cutting.join_segments is not None:
        order = rng.permutation(order)
        bounds = _join(_Lengths(corpus, order), cutting, rng)
    elif cutting.level == "segment":
        bounds = array("q", range(len(order) + 1))
    else:
        bounds = _cut(_Lengths(corpus, order), corpus.document_of[order], cutting, rng)
    ends = np.array(bounds, dtype=np.int64)
    sides = zip((corpus.source_lengths, corpus.target_lengths), corpus.ends, strict=True)
    lengths = [np.diff(np.concatenate(([0], np.cumsum(tokens[order])))[ends]) + more for tokens, more in sides]
    return Plan(order, ends, *lengths)


def check_overlong(corpus: EncodedCorpus, segments: Ints, cutting: Cutting) -> None:
    """Raise DataError for the longest segment beyond max_tokens if overlong="error"."""
    longest = segment_lengths(corpus)[segments]
    if cutting.overlong == "error" and len(longest) and longest.max() > cutting.max_tokens:
        worst = int(segments[longest.argmax()])
        document = int(corpus.document_of[worst])
        raise DataError(
            f"document {corpus.ids[document]!r}, segment {worst - int(corpus.documents[document])}: "
            f"{int(longest.max())} tokens are more than data.max_tokens={cutting.max_tokens}: "
            f"raise max_tokens, split the segment, or set data.overlong=keep"
        )


def segment_lengths(corpus: EncodedCorpus) -> Ints:
    """(segments,) length of the example that a single segment would form, on its longer side."""
    source, target = corpus.ends
    return np.maximum(corpus.source_lengths + source, corpus.target_lengths + target)


class _Lengths:
    """Running token counts over segments in a given order, to find how many fit."""

    def __init__(self, corpus: EncodedCorpus, order: Ints) -> None:
        # Arrays of C integers: fast to bisect, with an eighth of the memory of lists.
        self.sides = [
            array("q", np.concatenate(([0], np.cumsum(side[order], dtype=np.int64))).tobytes())
            for side in (corpus.source_lengths, corpus.target_lengths)
        ]
        self.ends = corpus.ends
        self.count = len(order)

    def fit(self, start: int, stop: int, limit: float) -> int:
        """The end of the longest run from `start`, up to `stop`, of at most `limit` tokens; at least one segment."""
        end = stop
        for sums, more in zip(self.sides, self.ends, strict=True):
            end = bisect_right(sums, sums[start] + limit - more, start, end + 1) - 1
        return max(end, start + 1)

    def alone(self, start: int) -> int:
        """Length of the example that the segment alone would form."""
        return max(sums[start + 1] - sums[start] + more for sums, more in zip(self.sides, self.ends, strict=True))


def _cut(lengths: _Lengths, document_of: Ints, cutting: Cutting, rng: np.random.Generator) -> array[int]:
    starts = [0, *(np.flatnonzero(np.diff(document_of)) + 1).tolist(), lengths.count] if lengths.count else [0]
    bounds = array("q", [0])
    for start, stop in pairwise(starts):
        position = start
        while position < stop:
            limit: float = cutting.max_tokens
            if cutting.multi_resolution and stop - position > 1:
                # Log-uniform from the next segment alone to the maximum.
                least = min(lengths.alone(position), cutting.max_tokens)
                limit = least * (cutting.max_tokens / least) ** rng.random()
            position = lengths.fit(position, stop, limit)
            bounds.append(position)
    return bounds


def _join(lengths: _Lengths, cutting: Cutting, rng: np.random.Generator) -> array[int]:
    assert cutting.join_segments is not None
    fewest, most = cutting.join_segments
    bounds = array("q", [0])
    while bounds[-1] < lengths.count:
        wanted = bounds[-1] + int(rng.integers(fewest, most + 1))
        bounds.append(lengths.fit(bounds[-1], min(wanted, lengths.count), cutting.max_tokens))
    return bounds
