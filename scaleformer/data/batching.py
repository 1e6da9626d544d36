"""From documents to batches: cutting at segment boundaries, joining, token budgets, padding.

A plan says which segments make an example; every segment that is kept stands in exactly one example of a plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaleformer.batch import Batch
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.data.errors import DataError
from scaleformer.data.tokenizer import BOS, EOS, PAD, SEP

Ints = NDArray[np.int64]
# Examples whose lengths differ by less than this factor count as equally long: enough freedom to mix them anew in
# every epoch, at little padding.
_BUCKET_RATIO = 1.06


@dataclass(frozen=True)
class Example:
    """Some segments of a document, as tokens.

    id        document, segment range: "name[3:7]"; the plain name for a whole document
    document  name of the (first segment's) document
    segments  numbers of the segments, within the whole corpus
    source    ids: every segment closed by `<sep>`, `</s>` at the end
    target    likewise
    """

    id: str
    document: str
    segments: tuple[int, ...]
    source: NDArray[Any]
    target: NDArray[Any]


@dataclass(frozen=True)
class Plan:
    """Examples as runs of segment numbers: example n holds order[bounds[n]:bounds[n + 1]].

    source_lengths, target_lengths  (examples,) tokens with every `<sep>` and the `</s>`
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


def kept_segments(corpus: EncodedCorpus, max_ratio: float | None) -> Ints:
    """Numbers of the segments whose token counts, `<sep>` included, differ by no more than the factor `max_ratio`."""
    if max_ratio is None:
        return np.arange(corpus.segments)
    source, target = corpus.source_lengths, corpus.target_lengths
    return np.flatnonzero(np.maximum(source, target) <= max_ratio * np.minimum(source, target))


def make_plan(corpus: EncodedCorpus, cutting: Cutting, rng: np.random.Generator) -> Plan:
    """Cut or join the segments of a corpus into examples of at most `max_tokens` on either side.

    rng: of multi_resolution and join_segments; without these every cut is as long as may be. A segment longer than
    max_tokens alone is an example of its own. Raises DataError with overlong="error" for one.
    """
    order = kept_segments(corpus, cutting.max_ratio)
    check_overlong(corpus, order, cutting)
    if cutting.join_segments is not None:
        order = rng.permutation(order)
        bounds = _join(_Lengths(corpus, order), cutting, rng)
    else:
        bounds = _cut(_Lengths(corpus, order), corpus.document_of[order], cutting, rng)
    ends = np.array(bounds, dtype=np.int64)
    lengths = [
        np.diff(np.concatenate(([0], np.cumsum(side[order])))[ends]) + 1
        for side in (corpus.source_lengths, corpus.target_lengths)
    ]
    return Plan(order, ends, lengths[0], lengths[1])


def check_overlong(corpus: EncodedCorpus, segments: Ints, cutting: Cutting) -> None:
    """Raise DataError for the longest segment beyond max_tokens if overlong="error"."""
    longest = segment_lengths(corpus)[segments]
    if cutting.overlong == "error" and len(longest) and longest.max() > cutting.max_tokens:
        worst = int(segments[longest.argmax()])
        document = int(corpus.document_of[worst])
        raise DataError(
            f"document {corpus.ids[document]!r}, segment {worst - int(corpus.documents[document])}: "
            f"{int(longest.max())} tokens are more than data.max_tokens={cutting.max_tokens}: "
            f"raise it, split the segment, or set data.overlong=keep"
        )


def segment_lengths(corpus: EncodedCorpus) -> Ints:
    """(segments,) length of the example that a segment alone makes, on its longer side."""
    return np.maximum(corpus.source_lengths, corpus.target_lengths) + 1


class _Lengths:
    """Running token counts over segments in a given order, for finding how many fit."""

    def __init__(self, corpus: EncodedCorpus, order: Ints) -> None:
        self.sides: list[list[int]] = [
            np.concatenate(([0], np.cumsum(side[order]))).tolist()
            for side in (corpus.source_lengths, corpus.target_lengths)
        ]
        self.count = len(order)

    def fit(self, start: int, stop: int, limit: float) -> int:
        """The end of the longest run from `start`, up to `stop`, of `limit` tokens at most; at least one segment."""
        end = stop
        for sums in self.sides:
            end = bisect_right(sums, sums[start] + limit - 1, start, end + 1) - 1
        return max(end, start + 1)

    def alone(self, start: int) -> int:
        """Length of the example that the segment alone makes."""
        return max(sums[start + 1] - sums[start] for sums in self.sides) + 1


def _cut(lengths: _Lengths, document_of: Ints, cutting: Cutting, rng: np.random.Generator) -> list[int]:
    starts = [0, *(np.flatnonzero(np.diff(document_of)) + 1).tolist(), lengths.count] if lengths.count else [0]
    bounds = [0]
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


def _join(lengths: _Lengths, cutting: Cutting, rng: np.random.Generator) -> list[int]:
    assert cutting.join_segments is not None
    fewest, most = cutting.join_segments
    bounds = [0]
    while bounds[-1] < lengths.count:
        wanted = bounds[-1] + int(rng.integers(fewest, most + 1))
        bounds.append(lengths.fit(bounds[-1], min(wanted, lengths.count), cutting.max_tokens))
    return bounds


def make_batches(plan: Plan, batch_tokens: int, rng: np.random.Generator | None) -> list[Ints]:
    """Numbers of examples, batch by batch: rows * (longest source + longest target) <= batch_tokens.

    Examples of about equal length stand together. An example that is beyond the budget alone is a batch of its own.
    With rng, equally long examples are mixed and the batches shuffled; without it they go from short to long.
    """
    source, target = plan.source_lengths, plan.target_lengths
    ties = np.arange(len(plan)) if rng is None else rng.permutation(len(plan))
    buckets = [np.floor(np.log(side) / np.log(_BUCKET_RATIO)) for side in (source, target)]
    ranking = np.lexsort((ties, buckets[1], buckets[0]))
    batches: list[Ints] = []
    first = longest_source = longest_target = 0
    pairs = zip(source[ranking].tolist(), target[ranking].tolist(), strict=True)
    for position, (s, t) in enumerate(pairs):
        wider_source, wider_target = max(longest_source, s), max(longest_target, t)
        if position > first and (position - first + 1) * (wider_source + wider_target) > batch_tokens:
            batches.append(ranking[first:position])
            first, wider_source, wider_target = position, s, t
        longest_source, longest_target = wider_source, wider_target
    if len(plan):
        batches.append(ranking[first:])
    if rng is not None:
        batches = [batches[i] for i in rng.permutation(len(batches))]
    return batches


def share(batches: list[Ints], rank: int, world: int) -> list[Ints]:
    """The batches of one of `world` processes: equally many for each, the first ones given twice if need be."""
    short = -len(batches) % world
    padded = batches + [batches[i % len(batches)] for i in range(short)] if batches else batches
    return padded[rank::world]


def make_example(corpus: EncodedCorpus, segments: Ints) -> Example:
    """The example that some segments make."""
    first, last = int(segments[0]), int(segments[-1])
    document = int(np.searchsorted(corpus.documents, first, "right")) - 1
    start, stop = int(corpus.documents[document]), int(corpus.documents[document + 1])
    name = corpus.ids[document]
    contiguous = last - first == len(segments) - 1 and last < stop
    if not contiguous:
        label = f"{name}[{first - start}]+{len(segments) - 1}"
    elif first == start and last == stop - 1:
        label = name
    else:
        label = f"{name}[{first - start}:{last + 1 - start}]"
    return Example(
        label,
        name,
        tuple(segments.tolist()),
        _tokens(corpus.source, corpus.source_offsets, segments),
        _tokens(corpus.target, corpus.target_offsets, segments),
    )


def _tokens(tokens: NDArray[Any], offsets: Ints, segments: Ints) -> NDArray[Any]:
    parts = [tokens[offsets[i] : offsets[i + 1]] for i in segments.tolist()]
    return np.concatenate([*parts, np.array([EOS], tokens.dtype)])


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to a batch; the fields are described in `scaleformer.batch`."""
    source, source_mask = _pad([example.source for example in examples])
    output, target_mask = _pad([example.target for example in examples])
    inputs, _ = _pad([np.concatenate(([BOS], example.target[:-1])) for example in examples])
    is_source_sep, is_target_sep = (source == SEP).long(), (inputs == SEP).long()
    return Batch(
        source=source,
        source_mask=source_mask,
        source_segments=is_source_sep.cumsum(1) - is_source_sep,
        target_input=inputs,
        target_output=output,
        target_mask=target_mask,
        target_segments=is_target_sep.cumsum(1),
        ids=tuple(example.id for example in examples),
    )


def _pad(rows: list[NDArray[Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (B, longest) long and their mask, True where real."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max())[None, :] < lengths[:, None]  # (B, longest)
    padded = np.full(mask.shape, PAD, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(mask)
