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
from scaleformer.vocabulary import MOST, SEPARATORS

Ints = NDArray[np.int64]
SOURCE, TARGET = 1, 2  # BOTH is their sum


@dataclass(frozen=True)
class Plan:
    """Examples as runs of segment numbers: example n holds order[bounds[n]:bounds[n + 1]].

    left_out                        (segments in order,) the side without the separator after each segment: 0 none,
                                    `SOURCE`, `TARGET`, or their sum for both
    source_lengths, target_lengths  (examples,) tokens, including the remaining separators, the tag and the `</s>`
    """

    order: Ints
    bounds: Ints
    left_out: NDArray[np.int8]
    source_lengths: Ints
    target_lengths: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def segments(self, example: int) -> Ints:
        """The segment numbers of an example, in order."""
        return self.order[self.bounds[example] : self.bounds[example + 1]]

    def part(self, example: int) -> tuple[Ints, NDArray[np.int8]]:
        """The segment numbers of an example, in order, and the side without the separator after each."""
        run = slice(self.bounds[example], self.bounds[example + 1])
        return self.order[run], self.left_out[run]


@dataclass(frozen=True)
class Cutting:
    """How documents become examples; the fields are those of `DataConfig`."""

    max_tokens: int
    multi_resolution: bool = False
    join_segments: tuple[int, int] | None = None
    max_ratio: float | None = None
    overlong: str = "keep"
    drop_separators: float = 0.0
    merge_segments: float = 0.0
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

    With level="segment" each segment is an example. rng draws for multi_resolution, join_segments, drop_separators and
    merge_segments; without these every example is as long as possible. A single segment beyond max_tokens becomes its
    own example, or raises DataError with overlong="error".
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
    left_out = _leave_out(corpus, order, ends, cutting, rng)
    lengths = [
        np.diff(np.concatenate(([0], np.cumsum(tokens[order] - (left_out & side > 0))))[ends]) + more
        for side, tokens, more in zip(
            (SOURCE, TARGET), (corpus.source_lengths, corpus.target_lengths), corpus.ends, strict=True
        )
    ]
    return Plan(order, ends, left_out, lengths[0], lengths[1])


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


def _leave_out(
    corpus: EncodedCorpus, order: Ints, ends: Ints, cutting: Cutting, rng: np.random.Generator
) -> NDArray[np.int8]:
    """(segments in order,) the side without the separator after each; an example's last separator always stays.

    Draws random numbers only for settings that are on.
    """
    left_out = np.zeros(len(order), dtype=np.int8)
    if cutting.drop_separators > 0:
        left_out[rng.random(len(order)) < cutting.drop_separators] = 1
        left_out *= rng.integers(SOURCE, TARGET, len(order), dtype=np.int8, endpoint=True)
    if cutting.merge_segments > 0:
        for first, last in pairwise(ends.tolist()):
            if last - first > 1 and rng.random() < cutting.merge_segments:
                size = int(2 * ((last - first + 0.5) / 2) ** rng.random())  # log-uniform, from two to all
                left_out[first:last] = SOURCE | TARGET
                left_out[first + size - 1 : last : size] = 0
    if len(ends) > 1:
        left_out[ends[1:] - 1] = 0
    return _possible(left_out, corpus, order)


def _possible(left_out: NDArray[np.int8], corpus: EncodedCorpus, order: Ints) -> NDArray[np.int8]:
    """Restrict `left_out` to what separators can express: those of beads stay, none consumes over `MOST` segments."""
    single = corpus.single[order]
    followed = np.append(single[1:], True)
    left_out[~(single & followed)] &= SOURCE
    left_out[corpus.source_lengths[order] == 0] &= TARGET
    # A target segment that continues also consumes what its removed separator would have consumed.
    goes_on, taken = left_out & TARGET > 0, left_out & SOURCE == 0
    running = np.cumsum(goes_on & taken)
    running -= np.maximum.accumulate(np.where(goes_on, 0, running))
    left_out[(left_out == TARGET) & (running % MOST == 0)] = 0
    return left_out
