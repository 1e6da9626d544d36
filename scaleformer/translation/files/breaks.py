"""Line breaks that mean something: a translation gets as many of them as what it takes the place of."""

from __future__ import annotations

import re
from collections.abc import Callable

from scaleformer.translation.files.segments import Block, Change, Span

# What neither XML nor a line may hold: controls, line separators, halves of characters.
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]+")
_DASHES = ("-", "–", "—")


def plain(text: str) -> str:
    """Text of a model as a line that every format can hold."""
    return _UNWRITABLE.sub(" ", text)


def break_again(block: Block, change: Change, written: Callable[[int, int], str]) -> list[str | Span]:
    """The parts of a change, prose as single characters, a space made a line break for each one of what it replaces.

    written  what the file has between two origins. A space of the block that has a line break there is one.
    Each break goes to the space nearest the same share of the length; one in front of a dash, which begins what another
    one says, to such a space, where there is one. A translation of few spaces gets fewer lines.
    """
    parts: list[str | Span] = []
    for part in change.parts:
        parts += [part] if isinstance(part, Span) else plain(part)
    breaks = [
        (place, text)
        for place in range(change.start + 1, change.stop - 1)
        if block.text[place] == " " and re.search("[\r\n]", text := written(*block.origins[place]))
    ]
    spaces = [place for place in range(1, len(parts) - 1) if parts[place] == " "]
    for number, (place, text) in enumerate(breaks, 1):
        choices = spaces[: max(len(spaces) - (len(breaks) - number), 1)]  # the breaks to come want one each
        if block.text[place + 1] in _DASHES:
            choices = [space for space in choices if parts[space + 1] in _DASHES] or choices
        if not choices:
            break
        share = (place - change.start) / (change.stop - change.start) * len(parts)
        distances = [abs(space - share) for space in choices]
        chosen = choices[distances.index(min(distances))]
        parts[chosen] = text
        spaces = [space for space in spaces if space > chosen]
    return parts
