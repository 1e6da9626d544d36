"""Turns examples into padded batches: token budgets, order, and the shares of several processes.

Every example of a plan is in exactly one batch of exactly one process.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from scaleformer.batch import Batch
from scaleformer.data.cutting import Ints, Plan
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.vocabulary import BOS, EOS, PAD, SEP, consumed

# Lengths that differ by less than this factor count as equal: enough freedom to mix every epoch, with little padding.
_BUCKET_RATIO = 1.06
# Batches whose padded sizes differ by less than this share of the largest count as equally large.
_SIZE_STEP = 1 / 16
_CHUNK = 1 << 16

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Example:
    """Some segments of a document, as tokens.

    id         document and segment range: "name[3:7]"; only the name for a whole document
    source     ids: the tag of the corpus if it has one, every segment with its `<sep>`, then `</s>`
    target     likewise, with target separators and no tag
    continues  as in `Batch`
    """

    id: str
    source: NDArray[Any]
    target: NDArray[Any]
    continues: bool | None = None


def make_batches(plan: Plan, batch_tokens: int, rng: np.random.Generator | None, group: int = 1) -> list[Ints]:
    """Numbers of examples, batch by batch: rows * (longest source + longest target) <= batch_tokens.

    Examples of about equal length share a batch. An example that exceeds the budget alone is its own batch.
    With rng, equally long examples are mixed and the batches shuffled; without it they run from short to long.
    group: number of batches per step (processes times accumulated batches). The batches of a group are about equally
    large, so that no process waits for another. The groups are shuffled, an incomplete one comes last.
    """
    source, target = plan.source_lengths, plan.target_lengths
    ties = np.arange(len(plan)) if rng is None else rng.permutation(len(plan))
    buckets = [np.floor(np.log(side) / np.log(_BUCKET_RATIO)) for side in (source, target)]
    ranking = np.lexsort((ties, buckets[1], buckets[0]))
    packed = pack_padded(enumerate(_pairs(source, target, ranking)), batch_tokens)
    batches = [ranking[batch[0] : batch[-1] + 1] for batch in packed]
    if rng is not None:
        batches = [batches[i] for i in _order(padded_sizes(plan, batches), rng, group)]
    return batches


def pack(items: Iterable[tuple[T, S]], join: Callable[[S, S], S], fits: Callable[[S, int], bool]) -> Iterator[list[T]]:
    """Items, each with its size, in their order in batches, each with as many as fit; one that does not fit is alone.

    join: the size of two together; fits: whether a batch of this size and number of items is allowed
    """
    batch: list[T] = []
    whole: S | None = None
    for item, size in items:
        joined = size if whole is None else join(whole, size)
        if batch and not fits(joined, len(batch) + 1):
            yield batch
            batch, joined = [], size
        batch.append(item)
        whole = joined
    if batch:
        yield batch


def pack_padded(items: Iterable[tuple[T, tuple[int, ...]]], budget: int) -> Iterator[list[T]]:
    """`pack` by the lengths of each item on one side or several, padded: items * sum of the longest <= budget."""
    return pack(items, lambda a, b: tuple(map(max, a, b)), lambda longest, number: number * sum(longest) <= budget)


def make_rows(plan: Plan, documents: Ints, batch_tokens: int, rng: np.random.Generator) -> list[Ints]:
    """Numbers of examples, batch by batch, such that those of a document follow one another in the same row.

    documents (examples,), that of each example; those of one are neighbours in the plan, in order. Documents come in
    random order, each to the row that has the fewest examples so far. Rows are ranked by their examples, so that the
    ones that end come last. They are as many as the longest source and target allow, at least one.
    """
    starts = np.flatnonzero(np.diff(documents, prepend=-1))
    pieces = np.split(np.arange(len(plan)), starts[1:])
    longest = int(plan.source_lengths.max(initial=1) + plan.target_lengths.max(initial=1))
    rows: list[list[int]] = [[] for _ in range(max(1, batch_tokens // longest))]
    queue = [(0, row) for row in range(len(rows))]  # a heap: examples, row
    for document in rng.permutation(len(starts)).tolist():
        count, row = queue[0]
        rows[row] += pieces[document].tolist()
        heapq.heapreplace(queue, (count + len(pieces[document]), row))
    rows.sort(key=len, reverse=True)
    return [np.array([row[n] for row in rows if n < len(row)], dtype=np.int64) for n in range(len(rows[0]))]


def _pairs(source: Ints, target: Ints, ranking: Ints) -> Iterator[tuple[int, int]]:
    """Lengths of the examples in the order of the ranking, as Python integers, converted chunk by chunk."""
    for start in range(0, len(ranking), _CHUNK):
        chosen = ranking[start : start + _CHUNK]
        yield from zip(source[chosen].tolist(), target[chosen].tolist(), strict=True)


def padded_sizes(plan: Plan, batches: Sequence[Ints]) -> Ints:
    """(batches,) padded source and target positions of each batch; 0 for one without examples."""
    sides = (plan.source_lengths, plan.target_lengths)
    sizes = [len(batch) * sum(int(side[batch].max(initial=0)) for side in sides) for batch in batches]
    return np.array(sizes, dtype=np.int64)


def _order(sizes: Ints, rng: np.random.Generator, group: int) -> Ints:
    """A random order of the batches in which each run of `group` batches has about equal sizes."""
    order = rng.permutation(len(sizes))
    if group == 1 or not len(sizes):
        return order
    steps = np.floor(sizes / (sizes.max() * _SIZE_STEP))
    ranked = order[np.argsort(-steps[order], kind="stable")]
    whole = len(ranked) // group * group
    groups = ranked[:whole].reshape(-1, group)
    return np.concatenate((groups[rng.permutation(len(groups))].ravel(), ranked[whole:]))


def share(batches: list[Ints], rank: int, world: int) -> list[Ints]:
    """The batches of process `rank` of `world`: every world-th one, equally many for each process.

    If the last batches are too few for all processes, they are split (`fill`).
    """
    whole = len(batches) // world * world
    last = fill(batches[whole:], world) if whole < len(batches) else []
    return (batches[:whole] + last)[rank::world]


def fill(batches: Sequence[Ints], count: int) -> list[Ints]:
    """The same examples in exactly `count` batches: batches with the most examples are halved until there are enough.

    If there are fewer examples than `count`, the rest are empty batches (`collate` turns them into fillers).
    """
    parts = list(batches)
    assert len(parts) <= count
    while len(parts) < count:
        widest = max(range(len(parts)), key=lambda i: len(parts[i]), default=-1)
        if widest < 0 or len(parts[widest]) < 2:
            return parts + [np.zeros(0, dtype=np.int64)] * (count - len(parts))
        half = (len(parts[widest]) + 1) // 2
        parts[widest : widest + 1] = [parts[widest][:half], parts[widest][half:]]
    return parts


def make_example(corpus: EncodedCorpus, segments: Ints, continues: bool | None = None) -> Example:
    """The example that some segments form."""
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
    source, target = (
        [tokens[offsets[n] : offsets[n + 1]] for n in segments.tolist()]
        for tokens, offsets in ((corpus.source, corpus.source_offsets), (corpus.target, corpus.target_offsets))
    )
    end = np.array([EOS], corpus.source.dtype)
    if corpus.tag is not None:
        source.insert(0, np.array([corpus.tag], corpus.source.dtype))
    return Example(label, np.concatenate([*source, end]), np.concatenate([*target, end]), continues)


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to a batch; the fields are described in `scaleformer.batch`.

    Without examples the batch is a filler: one row that reads `</s>` and predicts nothing (target_mask is all False,
    `ids` is empty), for a process that has run out of batches while others have not. It has no weight in losses that
    are weighted by the number of real target tokens.
    """
    if not examples:
        nothing = np.array([EOS])
        batch = collate([Example("", nothing, nothing)])
        return replace(batch, target_mask=torch.zeros_like(batch.target_mask), ids=())
    source, source_mask = _pad([example.source for example in examples])
    output, target_mask = _pad([example.target for example in examples])
    inputs, _ = _pad([np.concatenate(([BOS], example.target[:-1])) for example in examples])
    is_source_sep = (source == SEP).long()
    continues = [example.continues for example in examples if example.continues is not None]
    return Batch(
        source=source,
        source_mask=source_mask,
        source_segments=is_source_sep.cumsum(1) - is_source_sep,
        target_input=inputs,
        target_output=output,
        target_mask=target_mask,
        target_segments=consumed(inputs).cumsum(1),
        ids=tuple(example.id for example in examples),
        continues=torch.tensor(continues) if continues else None,
    )


def _pad(rows: list[NDArray[Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (B, longest) long and their mask, True where real."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max())[None, :] < lengths[:, None]  # (B, longest)
    padded = np.full(mask.shape, PAD, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(mask)
