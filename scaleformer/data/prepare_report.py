"""Counts of a conversion to JSON Lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.table import Table

from scaleformer.data.quality.survey import SPLITS


@dataclass
class PrepareReport:
    """Counts of a conversion: documents and segments written, by split, and left out, by reason."""

    documents: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    dropped_segments: Counter[str] = field(default_factory=Counter)
    dropped_documents: Counter[str] = field(default_factory=Counter)
    beads: Counter[str] = field(default_factory=Counter)  # raw documents: by source and target segments, "2-1"
    examples: Counter[str] = field(default_factory=Counter)  # contrastive test suites: by kind

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Plain types, for JSON."""
        return {name: dict(counts) for name, counts in vars(self).items()}

    def table(self) -> Table:
        """A table for `rich.print`."""
        table = Table(title="Prepared")
        for column in ("", "documents", "segments"):
            table.add_column(column, justify="right" if column else "left")
        for split in () if self.examples else SPLITS:
            table.add_row(split, f"{self.documents[split]:,}", f"{self.segments[split]:,}")
        for shape, number in self.beads.most_common():
            table.add_row(f"beads {shape}", "", f"{number:,}")
        for kind, number in self.examples.items():
            table.add_row(f"examples: {kind}", f"{number:,}", "")
        for reason in sorted({*self.dropped_segments, *self.dropped_documents}):
            documents, segments = self.dropped_documents.get(reason), self.dropped_segments.get(reason)
            cells = ("" if count is None else f"{count:,}" for count in (documents, segments))
            table.add_row(f"left out: {reason}", *cells)
        return table

    def reasons(self) -> str:
        """Why nothing is left."""
        counts = {**self.dropped_segments, **self.dropped_documents, **self.dropped_segments}  # segments, if both
        return ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "the input is empty"
