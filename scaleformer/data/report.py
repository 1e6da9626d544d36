"""What became of a corpus on its way to batches, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from scaleformer.data.batching import Cutting, Ints, Plan, make_batches, make_plan, segment_lengths
from scaleformer.data.encoded import EncodedCorpus


@dataclass(frozen=True)
class SplitReport:
    """Counts of one split. Tokens contain every `<sep>`, not the `</s>`.

    cut_documents         documents of more than one example
    empty_segments        segments without a token on one side or both
    overlong_segments     segments beyond max_tokens alone, kept whole; longest_segment in tokens, with its `</s>`
    over_budget_examples  examples beyond batch_tokens alone, kept as batches of one
    dropped               segments left out, by reason
    padding               share of the padded positions in the batches that hold no token
    """

    documents: int
    segments: int
    source_tokens: int
    target_tokens: int
    examples: int
    batches: int
    cut_documents: int
    empty_segments: int
    overlong_segments: int
    longest_segment: int
    over_budget_examples: int
    dropped: dict[str, int]
    padding: float


@dataclass
class DataReport:
    """Counts of all splits, with the limits that they refer to."""

    max_tokens: int
    batch_tokens: int
    splits: dict[str, SplitReport] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return asdict(self)

    def table(self) -> Table:
        """A table for `rich.print`."""
        table = Table(title=f"Data (max_tokens {self.max_tokens}, batch_tokens {self.batch_tokens})")
        table.add_column("")
        for name in self.splits:
            table.add_column(name, justify="right")
        rows = [row for row in SplitReport.__dataclass_fields__ if row not in ("dropped", "padding")]
        for row in rows:
            table.add_row(row.replace("_", " "), *(f"{getattr(split, row):,}" for split in self.splits.values()))
        for reason in sorted({reason for split in self.splits.values() for reason in split.dropped}):
            values = (f"{split.dropped.get(reason, 0):,}" for split in self.splits.values())
            table.add_row(f"dropped segments: {reason}", *values)
        table.add_row("padding", *(f"{split.padding:.1%}" for split in self.splits.values()))
        return table


def report_split(
    corpus: EncodedCorpus, cutting: Cutting, batch_tokens: int, rng: np.random.Generator, shuffle: bool = True
) -> SplitReport:
    """Count what the plan and the batches of an epoch make of a corpus; `rng` as for that epoch."""
    plan = make_plan(corpus, cutting, rng)
    batches = make_batches(plan, batch_tokens, rng if shuffle else None)
    lengths = segment_lengths(corpus)
    shortest = np.minimum(corpus.source_lengths, corpus.target_lengths)
    ratio = corpus.segments - len(plan.order)
    return SplitReport(
        documents=len(corpus.documents) - 1,
        segments=corpus.segments,
        source_tokens=len(corpus.source),
        target_tokens=len(corpus.target),
        examples=len(plan),
        batches=len(batches),
        cut_documents=_cut_documents(corpus, plan),
        empty_segments=int((shortest == 1).sum()),
        overlong_segments=int((lengths > cutting.max_tokens).sum()),
        longest_segment=int(lengths.max(initial=0)),
        over_budget_examples=int((plan.source_lengths + plan.target_lengths > batch_tokens).sum()),
        dropped={"length ratio": ratio} if cutting.max_ratio is not None else {},
        padding=_padding(plan, batches),
    )


def _cut_documents(corpus: EncodedCorpus, plan: Plan) -> int:
    """Documents whose segments stand in more than one example."""
    example_of = np.repeat(np.arange(len(plan)), np.diff(plan.bounds))
    pairs = np.unique(np.stack([corpus.document_of[plan.order], example_of]), axis=1)
    return int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())


def _padding(plan: Plan, batches: list[Ints]) -> float:
    sides = (plan.source_lengths, plan.target_lengths)
    padded = sum(len(batch) * sum(int(side[batch].max()) for side in sides) for batch in batches)
    return 1 - int(sum(side.sum() for side in sides)) / padded if padded else 0.0
