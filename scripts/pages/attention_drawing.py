"""`python -m scripts.pages.attention_drawing` writes docs/attention.svg: what the listing of docs/attention.md sees."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DOCS = Path(__file__).parents[2] / "docs"
PAGE, DRAWING = DOCS / "attention.md", DOCS / "attention.svg"
SEGMENTS, TOKENS, NEAR, KEPT = 8, 4, 1, 4
CELL, LEFT, TOP, GAP = 9, 34, 46, 60
BLUES = ("#1f6fb2", "#8fbce0")  # the own segment, and those near it
ORANGE = "#e8850c"


def listing() -> dict[str, Any]:
    """The functions that the page shows."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def drawing() -> str:
    """The whole picture."""
    size = SEGMENTS * TOKENS
    side = size * CELL
    width, height = LEFT + 2 * side + GAP + 12, TOP + side + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    sites = (("Decoder, self-attention", "target so far", True), ("Cross-attention", "source", False))
    for number, (title, keys, causal) in enumerate(sites):
        parts += _panel(LEFT + number * (side + GAP), side, title, keys, causal)
    y = TOP + side + 24
    legend = (0, BLUES[0], "own segment"), (140, BLUES[1], "near segments"), (290, ORANGE, "kept of the rest")
    for offset, colour, text in legend:
        x = LEFT + offset
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{y}" font-size="13">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, side: int, title: str, keys: str, causal: bool) -> list[str]:
    """One matrix of queries and keys, with its title and the names of its sides."""
    middle = left + side // 2
    parts = [
        f'<text x="{middle}" y="16" font-size="15" text-anchor="middle" font-weight="bold">{title}</text>',
        f'<text x="{middle}" y="{TOP - 8}" font-size="13" text-anchor="middle">keys: {keys} →</text>',
        f'<text transform="translate({left - 10} {TOP + side // 2}) rotate(-90)" font-size="13" text-anchor="middle">'
        "← queries: target</text>",
    ]
    for row, colours in enumerate(_colours(causal)):
        start = 0
        for colour, run in groupby(colours):
            length = len(list(run))
            if colour:
                place = f'x="{left + start * CELL}" y="{TOP + row * CELL}" width="{length * CELL}" height="{CELL}"'
                parts.append(f'<rect {place} fill="{colour}"/>')
            start += length
    for n in range(SEGMENTS + 1):
        at = n * TOKENS * CELL
        lines = f"M{left} {TOP + at}h{side}M{left + at} {TOP}v{side}"
        parts.append(f'<path d="{lines}" stroke="#999" stroke-width="0.7" fill="none"/>')
    return parts


def _colours(causal: bool) -> list[list[str]]:
    """The colour of each pair of query and key, "" where the query does not see the key."""
    segments = torch.arange(SEGMENTS).repeat_interleave(TOKENS)  # (L,)
    x = segments[None, :] - segments[:, None]  # (L, L)
    visible = torch.ones_like(x, dtype=torch.bool)
    # Any importance serves; this one is spread over the text, and does not depend on a generator of random numbers.
    salience = torch.tensor([[(37 * j + 11) % 64 / 64 for j in range(len(segments))]])  # (1, L)
    seen: Tensor = listing()["seen_keys"](
        x, visible.tril() if causal else visible, salience, torch.tensor([0.05]), segments, NEAR, KEPT, causal
    )[0]
    return [
        [(BLUES[min(abs(d), 1)] if abs(d) <= NEAR else ORANGE) if s else "" for s, d in zip(row, distance, strict=True)]
        for row, distance in zip(seen.tolist(), x.tolist(), strict=True)
    ]


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
