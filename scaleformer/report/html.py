"""One page with everything: text, tables and images in a single HTML file that needs no network."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from html import escape
from pathlib import Path

from scaleformer.text.words import spans

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


def samples(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Texts side by side: source, reference, then hypotheses, whose differences from the reference are marked.

    Words that the reference does not have at that place are underlined on grey; a caret marks missing words of the
    reference. Both survive printing in grey.
    """
    head = "".join(f'<th dir="auto">{escape(name)}</th>' for name in columns)
    body = "\n".join(
        f'<tr><td dir="auto">{escape(source)}</td><td dir="auto">{escape(reference)}</td>'
        + "".join(f'<td dir="auto">{mark_differences(reference, hypothesis)}</td>' for hypothesis in hypotheses)
        + "</tr>"
        for source, reference, *hypotheses in rows
    )
    return f'<table class="samples"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def mark_differences(reference: str, hypothesis: str) -> str:
    """The hypothesis as HTML, its words (characters, in a script without spaces) compared with the reference's."""
    theirs, ours = spans(reference), spans(hypothesis)
    both = [[text[start:stop] for start, stop in found] for text, found in ((reference, theirs), (hypothesis, ours))]
    html, end = "", 0
    for tag, i1, i2, j1, j2 in SequenceMatcher(a=both[0], b=both[1], autojunk=False).get_opcodes():
        if tag == "delete":
            missing = escape(reference[theirs[i1][0] : theirs[i2 - 1][1]], quote=True)
            space = " " if hypothesis[end : end + 1].isspace() else ""
            html += f'{space}<span class="gap" title="missing: {missing}">&#8248;</span>'
            continue
        start, stop = ours[j1][0], ours[j2 - 1][1]
        text = escape(hypothesis[start:stop])
        html += escape(hypothesis[end:start]) + (text if tag == "equal" else f"<mark>{text}</mark>")
        end = stop
    return html


def _cell(value: str | float | int | None) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, (int, float)):
        return (
            f'<td class="number">{value:,}</td>' if isinstance(value, int) else f'<td class="number">{value:.2f}</td>'
        )
    return f'<td dir="auto">{escape(value)}</td>'
