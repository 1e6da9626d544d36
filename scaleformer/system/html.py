"""One page with everything: text, tables and images in a single HTML file that needs no network."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #111; background: #fff; margin: 0 auto; max-width: 76rem;
       padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem;
     border-bottom: 1px solid #bbb; } h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; }
table { border-collapse: collapse; margin: .5rem 0; } th, td { border: 1px solid #ccc; padding: .25rem .55rem;
      vertical-align: top; text-align: start; } th { background: #eee; } td.number { text-align: right;
      font-variant-numeric: tabular-nums; }
table.samples { width: 100%; table-layout: fixed; } table.samples td { overflow-wrap: anywhere; }
mark { background: #e6e6e6; color: inherit; font-weight: 600; text-decoration: underline; }
.gap { font-weight: 700; color: #555; } .note { color: #444; font-size: .87rem; overflow-wrap: anywhere; }
.wide, figure { overflow-x: auto; } figure { margin: .8rem 0; } img { max-width: max(100%, 44rem); height: auto; }
figcaption { color: #444; font-size: .87rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; padding: .5rem; font-size: .82rem; }
nav a { margin-right: 1rem; }
@media print { body { max-width: none; padding: 0; } details { display: block; } nav { display: none; } }
"""


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """The whole file, from sections of (heading, HTML); empty ones are left out."""
    present = [(heading, body) for heading, body in sections if body]
    links = "".join(f'<a href="#s{number}">{escape(heading)}</a>' for number, (heading, _) in enumerate(present))
    bodies = "\n".join(
        f'<h2 id="s{number}">{escape(heading)}</h2>\n{body}' for number, (heading, body) in enumerate(present)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        f'<h1 dir="auto">{escape(title)}</h1>\n<nav>{links}</nav>\n{bodies}\n</body></html>\n'
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str | float | int | None]]) -> str:
    """A table; numbers right-aligned, floats with two digits, None as an empty cell."""
    head = "".join(f'<th dir="auto">{escape(name)}</th>' for name in columns)
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def figure(path: Path, caption: str) -> str:
    """A PNG file, inside the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
    return f'<figure>{image}<figcaption dir="auto">{escape(caption)}</figcaption></figure>'


def note(text: str) -> str:
    """A small paragraph."""
    return f'<p class="note" dir="auto">{escape(text)}</p>'


def folded(summary: str, body: str) -> str:
    """Content that opens on a click."""
    return f'<details><summary dir="auto">{escape(summary)}</summary>{body}</details>'


def _cell(value: str | float | int | None) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, (int, float)):
        return (
            f'<td class="number">{value:,}</td>' if isinstance(value, int) else f'<td class="number">{value:.2f}</td>'
        )
    return f'<td dir="auto">{escape(value)}</td>'
