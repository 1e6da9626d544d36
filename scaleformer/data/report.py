"""Counts of a corpus on its way to batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from rich.table import Table

from scaleformer.data.batching import make_batches, padded_sizes, share
from scaleformer.data.cutting import Ints, Plan, has_empty_side, make_plan, segment_lengths
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.data.sampler import Recipe, epoch_batches
from scaleformer.vocabulary import PLACEHOLDER, PLACEHOLDERS, UNK


@dataclass(frozen=True)
class SplitReport:
    """Counts of one split, or of a part of it; those of several parts or processes can be added. Token counts include
    every `<sep>`, but not the `</s>`.

    cut_documents         documents cut into more than one example
    empty_segments        segments without a token on one side or both
    unknown_tokens        characters on both sides lost as `<unk>` (none with tokenizer.byte_fallback)
    overlong_segments     single segments beyond max_tokens, kept whole
    longest_segment       its tokens, with the `</s>`
    longest_source, longest_target  tokens of the longest example, with the `</s>`
    over_budget_examples  single examples beyond batch_tokens, kept as batches of one
    masked_segments       segments with a placeholder in the source, from data.mask_spans or the text itself
    masked_spans          placeholders in the source
    dropped               segments left out, by reason
    dropped_documents     documents that lost all segments
    tokens, positions     in the batches: positions that hold a token, and all positions
    places                positions there would be if every process had the largest batch of each step
    """

    documents: int = 0
    segments: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    examples: int = 0
    batches: int = 0
    cut_documents: int = 0
    empty_segments: int = 0
    unknown_tokens: int = 0
    overlong_segments: int = 0
    longest_segment: int = 0
    longest_source: int = 0
    longest_target: int = 0
    over_budget_examples: int = 0
    masked_segments: int = 0
    masked_spans: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    dropped_documents: int = 0
    tokens: int = 0
    positions: int = 0
    places: int = 0

    @property
    def padding(self) -> float:
        """Share of the padded positions in the batches that hold no token."""
        return 1 - self.tokens / self.positions if self.positions else 0.0

    @property
    def idle(self) -> float:
        """Share of the positions lost while processes wait for the largest batch of a step."""
        return 1 - self.positions / self.places if self.places else 0.0

    def __add__(self, other: SplitReport) -> SplitReport:
        sums: dict[str, Any] = {
            name: max(a, b) if name.startswith("longest") else a + b
            for name, a, b in ((name, getattr(self, name), getattr(other, name)) for name in COUNTS)
        }
        reasons = {**self.dropped, **other.dropped}
        dropped = {reason: self.dropped.get(reason, 0) + other.dropped.get(reason, 0) for reason in reasons}
        return SplitReport(**sums, dropped=dropped)

    def with_batches(self, sizes: Sequence[Sequence[int]] | Ints) -> SplitReport:
        """These counts plus those of batches with the given numbers of positions, by process and step."""
        steps = np.asarray(sizes, dtype=np.int64)  # (processes, steps)
        places = len(steps) * int(steps.max(axis=0, initial=0).sum())
        return replace(self, batches=steps.size, positions=int(steps.sum()), places=places)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON: the shares in place of the counts that they come from."""
        shown = {name: value for name, value in asdict(self).items() if name not in BEHIND_SHARES}
        return {**shown, "padding": self.padding, "idle": self.idle}


COUNTS = tuple(f.name for f in fields(SplitReport) if f.name != "dropped")
BEHIND_SHARES = ("tokens", "positions", "places")


@dataclass(frozen=True)
class CorpusReport:
    """One of several corpora in training, or in one of its stages: its share of the drawn examples, the number that all
    processes have drawn so far (0: not counted), how often it was read, and the optimizer steps of the stage."""

    share: float
    examples: int = 0
    epochs: float = 0.0
    steps: int = 0


def stage_name(number: int, part: str = "") -> str:
    """The name of a stage, or of one of its corpora or splits; stages are counted from 1."""
    return f"stage {number}: {part}" if part else f"stage {number}"


@dataclass
class DataReport:
    """Counts of all splits, with the limits they refer to.

    processes  number of processes that share the batches
    corpora    with several corpora or stages, how examples are drawn from each
    leaks      segments of valid and test that stand in training, and their share; {} where it is not known
    """

    max_tokens: int
    batch_tokens: int
    processes: int = 1
    splits: dict[str, SplitReport] = field(default_factory=dict)
    corpora: dict[str, CorpusReport] = field(default_factory=dict)
    leaks: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        found = asdict(self) | {"splits": {name: split.to_dict() for name, split in self.splits.items()}}
        return {name: value for name, value in found.items() if name not in ("corpora", "leaks") or value}

    def table(self) -> Table:
        """A table for `rich.print`."""
        shared = f", {self.processes} processes" if self.processes > 1 else ""
        table = Table(title=f"Data (max_tokens {self.max_tokens}, batch_tokens {self.batch_tokens}{shared})")
        table.add_column("")
        for name in self.splits:
            table.add_column(name, justify="right")
        for row in (name for name in COUNTS if name not in BEHIND_SHARES):
            numbers = [getattr(split, row) for split in self.splits.values()]
            if any(numbers) or not row.startswith("masked"):
                table.add_row(row.replace("_", " "), *(f"{number:,}" for number in numbers))
        for reason in sorted({reason for split in self.splits.values() for reason in split.dropped}):
            values = (f"{split.dropped.get(reason, 0):,}" for split in self.splits.values())
            table.add_row(f"dropped segments: {reason}", *values)
        for share_of in ("padding", "idle")[: 1 if self.processes == 1 else 2]:
            table.add_row(share_of, *(f"{getattr(split, share_of):.1%}" for split in self.splits.values()))
        drawn = [self.corpora.get(name.removesuffix(": train")) for name in self.splits]
        for row, shape in (("share", "{:.1%}"), ("examples", "{:,}"), ("epochs", "{:.2f}"), ("steps", "{:,}")):
            if any(getattr(corpus, row) for corpus in self.corpora.values()):
                titles = {"share": "share of the examples drawn", "steps": "steps so far"}
                title = titles.get(row, f"{row} drawn so far")
                table.add_row(title, *("" if c is None else shape.format(getattr(c, row)) for c in drawn))
        return table


def report_split(corpus: EncodedCorpus, recipe: Recipe, shuffle: bool = True) -> SplitReport:
    """Count a corpus, its plan and the batches of all processes in the first epoch.

    shuffle=False for the fixed batches of validation.
    """
    rng, cutting = recipe.rng(0), recipe.cutting
    plan = make_plan(corpus, cutting, rng)
    if shuffle:
        batches = epoch_batches(corpus, plan, recipe, rng)
    else:
        batches = make_batches(plan, recipe.batch_tokens, None, recipe.world * recipe.accumulated)
    shares = [share(batches, rank, recipe.world) for rank in range(recipe.world)]
    sizes = np.stack([padded_sizes(plan, own) for own in shares])  # (processes, steps)
    return count_split(corpus, plan, recipe).with_batches(sizes)


def count_split(corpus: EncodedCorpus, plan: Plan, recipe: Recipe) -> SplitReport:
    """Count a corpus and its plan, without batches (`SplitReport.with_batches` adds them)."""
    cutting = recipe.cutting
    lengths = segment_lengths(corpus)
    shortest = np.minimum(corpus.source_lengths, corpus.target_lengths)
    empty = int(has_empty_side(corpus).sum()) if cutting.level == "segment" else 0
    dropped = {}
    if cutting.max_ratio is not None:
        dropped["length ratio"] = corpus.segments - len(plan.order) - empty
    if cutting.level == "segment":
        dropped["an empty side"] = empty
    kept_documents = len(np.unique(corpus.document_of[plan.order]))
    masked = np.flatnonzero((corpus.source >= PLACEHOLDER) & (corpus.source < PLACEHOLDER + len(PLACEHOLDERS)))
    return SplitReport(
        documents=len(corpus.documents) - 1,
        segments=corpus.segments,
        source_tokens=len(corpus.source),
        target_tokens=len(corpus.target),
        examples=len(plan),
        cut_documents=_cut_documents(corpus, plan),
        empty_segments=int((shortest == 1).sum()),
        unknown_tokens=sum(int((side == UNK).sum()) for side in (corpus.source, corpus.target)),
        overlong_segments=int((lengths > cutting.max_tokens).sum()),
        longest_segment=int(lengths.max(initial=0)),
        longest_source=int(plan.source_lengths.max(initial=0)),
        longest_target=int(plan.target_lengths.max(initial=0)),
        over_budget_examples=int((plan.source_lengths + plan.target_lengths > recipe.batch_tokens).sum()),
        masked_segments=len(np.unique(np.searchsorted(corpus.source_offsets, masked, "right"))),
        masked_spans=len(masked),
        dropped=dropped,
        dropped_documents=len(corpus.documents) - 1 - kept_documents,
        tokens=int(plan.source_lengths.sum() + plan.target_lengths.sum()),
    )


def _cut_documents(corpus: EncodedCorpus, plan: Plan) -> int:
    """Documents whose segments are in more than one example."""
    example_of = np.repeat(np.arange(len(plan)), np.diff(plan.bounds))
    pairs = np.unique(corpus.document_of[plan.order] * max(len(plan), 1) + example_of)
    return int((np.unique(pairs // max(len(plan), 1), return_counts=True)[1] > 1).sum())
