"""An HTML page with the aligned texts, the least confident first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scaleformer.data.align.pipeline import Match
from scaleformer.system import html

SHOWN = 2000  # beads of each list


def alignment_page(matches: Sequence[Match], languages: Sequence[str]) -> str:
    """HTML without scripts: beads by confidence, then texts without a partner, at most `SHOWN` of each."""
    sure = sorted((m for m in matches if m.confidence is not None), key=lambda m: m.confidence or 0.0)
    alone = [m for m in matches if m.confidence is None]
    columns = ("confidence", "left out", "document", f"source ({languages[0]})", f"target ({languages[1]})")

    def sections() -> Iterator[tuple[str, str]]:
        for title, found in (("Beads, least confident first", sure), ("Text without a partner", alone)):
            count = f"{len(found):,}" if len(found) <= SHOWN else f"the first {SHOWN:,} of {len(found):,}"
            rows = [
                (m.confidence, "" if m.fate == "kept" else m.fate, m.document, m.source, m.target)
                for m in found[:SHOWN]
            ]
            yield title, html.note(count) + html.table(columns, rows) if rows else ""

    return html.page("Alignment", sections())
