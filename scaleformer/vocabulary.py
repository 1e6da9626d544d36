"""Token ids that every vocabulary shares, and the meaning of the separators.

A source segment ends with `<sep>`. The separator that ends a target segment says how many source segments that segment
consumes: `<sep0>` none (another target segment for the same source follows), `<sep>` one, `<sep2>` and `<sep3>` two and
three. So segments need not match one to one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PAD, UNK, BOS, EOS, SEP = range(5)
SEP0, SEP2, SEP3 = 5, 6, 7
SEPARATORS = (SEP0, SEP, SEP2, SEP3)  # indexed by the number of source segments consumed
MOST = len(SEPARATORS) - 1
#: Stand for spans that must not be translated (code, links, version numbers). Text with one means it literally.
PLACEHOLDERS = tuple(f"\u27e8{n}\u27e9" for n in range(1, 10))
PLACEHOLDER = SEP3 + 1  # the id of the first placeholder
#: Every vocabulary begins with these pieces; the place of each is its id.
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>", "<sep>", "<sep0>", "<sep2>", "<sep3>", *PLACEHOLDERS)

SPACE = "\u2581"  # how pieces write a space

#: A tag is a piece `<NAME>` before the first segment of a source: it names the wanted language, domain or style.
TAG = re.compile(r"<([A-Za-z0-9][A-Za-z0-9_.-]*)>")
_TAKEN = re.compile(r"<(pad|unk|s|sep[023]?|0x[0-9A-F]{2})>")


def consumed(tokens: Tensor) -> Tensor:
    """How many source segments each target token consumes: long, shaped like `tokens`; 0 for all but separators."""
    return (tokens == SEP).long() + 2 * (tokens == SEP2) + 3 * (tokens == SEP3)


def is_separator(tokens: Tensor) -> Tensor:
    """Whether each target token ends a segment: bool, shaped like `tokens`."""
    return (tokens >= SEP) & (tokens <= SEP3)


def steps_of(token: int) -> int | None:
    """How many source segments a target token consumes; None unless it is a separator."""
    return SEPARATORS.index(token) if token in SEPARATORS else None


def tag_name(tag: str) -> str:
    """The name of a tag, given as `2es` or as its piece `<2es>`. Raises ValueError if it cannot be a tag."""
    piece = tag if tag.startswith("<") else f"<{tag}>"
    if (found := TAG.fullmatch(piece)) is None:
        raise ValueError(f"{tag!r:.60}: it must be a letter or digit, then letters, digits, _ . or - (2es, bt, bible)")
    if _TAKEN.fullmatch(piece):
        raise ValueError(f"{tag!r:.60}: {piece} is a reserved piece: choose another name")
    return found[1]


@lru_cache(maxsize=1024)
def separators(source: int, target: int) -> tuple[tuple[int, ...], ...]:
    """The separators that end each target segment of a bead with these numbers of source and target segments.

    The source segments are spread evenly, and later target segments get the remainder: (1, 2) gives `<sep0>`, `<sep>`;
    (3, 2) gives `<sep>`, `<sep2>`. A target segment that consumes more than three gets several separators, that is,
    empty target segments. A bead without target segments counts as one empty target segment.
    """
    count = max(target, 1)
    found = []
    for n in range(count):
        left = (n + 1) * source // count - n * source // count
        ends = []
        while left > MOST:
            ends.append(SEPARATORS[MOST])
            left -= MOST
        found.append((*ends, SEPARATORS[left]))
    return tuple(found)
