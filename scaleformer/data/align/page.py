"""An HTML page with the aligned texts, the least confident first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from scaleformer.data.align.pipeline import Match

SHOWN = 2000  # beads of each list
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #111; background: #fff; margin: 0 auto; max-width: 76rem;
       padding: 1.5rem; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; } col.narrow { width: 7rem; }
th, td { border: 1px solid #ccc; padding: .3rem .55rem; vertical-align: top; text-align: start;
         overflow-wrap: anywhere; } th { background: #eee; }
td.number { font-variant-numeric: tabular-nums; } .note { color: #444; font-size: .87rem; }
"""
HEAD = "<colgroup><col class='narrow'><col class='narrow'><col><col></colgroup>"


def alignment_page(matches: Sequence[Match], languages: Sequence[str]) -> str:
    """HTML without scripts: beads by confidence, then texts without a partner, at most `SHOWN` of each."""
    sure = sorted((m for m in matches if m.confidence is not None), key=lambda m: m.confidence or 0.0)
    alone = [m for m in matches if m.confidence is None]
    names = [f"source ({languages[0]})", f"target ({languages[1]})"]
    sections = [("Beads, least confident first", sure), ("Text without a partner", alone)]
    body = "\n".join(_section(title, found, names) for title, found in sections if found)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Alignment</title><style>{STYLE}</style></head>\n<body>\n<h1>Alignment</h1>\n{body}\n</body></html>\n"
    )


def _section(title: str, matches: Sequence[Match], names: Sequence[str]) -> str:
    shown = matches[:SHOWN]
    count = f"{len(matches):,}" if len(shown) == len(matches) else f"the first {SHOWN:,} of {len(matches):,}"
    head = "".join(f"<th>{escape(name)}</th>" for name in ("confidence", "document", *names))
    rows = "\n".join(map(_row, shown))
    table = f"<table>{HEAD}<thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    return f'<h2>{escape(title)}</h2>\n<p class="note">{count}</p>\n{table}'


def _row(match: Match) -> str:
    sure = "" if match.confidence is None else f"{match.confidence:.2f}"
    fate = "" if match.fate == "kept" else f"<br>left out: {escape(match.fate)}"
    texts = "".join(f'<td dir="auto">{escape(text)}</td>' for text in (match.document, match.source, match.target))
    return f'<tr><td class="number">{sure}{fate}</td>{texts}</tr>'
