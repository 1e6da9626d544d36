"""A translator that writes capitals and reorders the placeholders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from scaleformer.formats.restoring import Change, find_changes
from scaleformer.formats.segments import Segment, split_block
from scaleformer.vocabulary import PLACEHOLDERS

_PLACEHOLDER = re.compile("|".join(PLACEHOLDERS))


def shout(segment: Segment) -> str:
    """Prose in capitals, with single placeholders in reverse order."""
    alone = [PLACEHOLDERS[n] for n, group in enumerate(segment.groups) if all(span.pair is None for span in group)]
    reverse = iter(alone[::-1])
    text = _PLACEHOLDER.sub(lambda found: next(reverse) if found[0] in alone else found[0], segment.text)
    return "".join(piece if piece in PLACEHOLDERS else piece.upper() for piece in re.split("(⟨.⟩)", text))


def jumbler(random: Random) -> Callable[[Segment], str]:
    """A translator that loses and misplaces placeholders."""

    def jumble(segment: Segment) -> str:
        placeholders = list(PLACEHOLDERS[: len(segment.groups)])
        random.shuffle(placeholders)
        left = iter(placeholders[random.randrange(2) * len(placeholders) // 2 :])
        return _PLACEHOLDER.sub(lambda _: next(left, ""), segment.text.upper())

    return jumble


def translate(file: Any, translation: Callable[[Segment], str] = shout) -> tuple[bytes, Counter[str]]:
    """The file with all blocks translated, and the counts from restoring spans."""
    counts: Counter[str] = Counter()
    changes: list[list[Change]] = []
    for block in file.blocks:
        segments = split_block(block, "en", "sentence")
        changes.append(find_changes(segments, [translation(segment) for segment in segments], counts))
    return file.write(changes), counts


def unchanged(file: Any) -> bytes:
    """The file written without changes."""
    return file.write([[] for _ in file.blocks])


def shown(file: Any) -> list[tuple[str, str]]:
    """The kind of each block with prose, and its text to train on."""
    return [(block.kind, part.unmasked) for block in file.blocks for part in split_block(block, "en", "paragraph")]
