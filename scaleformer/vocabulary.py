"""The token ids that mean the same in every vocabulary, and what the separators say.

A source segment ends with `<sep>`. The separator that ends a target segment says how many source segments that segment
consumes: `<sep0>` none (another target segment for the same source follows), `<sep>` one, `<sep2>` and `<sep3>` two and
three. So segments need not match one to one. Vocabularies made before this was so have `<sep>` alone: those are not
`counted`, and their ids 5 to 7 are words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor

PAD, UNK, BOS, EOS, SEP = range(5)
SEP0, SEP2, SEP3 = 5, 6, 7
SEPARATORS = (SEP0, SEP, SEP2, SEP3)  # by how many source segments they consume
MOST = len(SEPARATORS) - 1
PAD_PIECE, UNK_PIECE, BOS_PIECE, EOS_PIECE, SEP_PIECE = "<pad>", "<unk>", "<s>", "</s>", "<sep>"
COUNTED_PIECES = ("<sep0>", "<sep2>", "<sep3>")  # ids 5, 6 and 7
#: Stand for what is not to be translated (code, links, numbers of versions); a text that holds one means it.
PLACEHOLDERS = tuple(f"\u27e8{n}\u27e9" for n in range(1, 10))
PLACEHOLDER = SEP3 + 1  # the id of the first of them, in counted vocabularies
#: Between these a source has the translation of the term before it; only of `data.annotate_terms`.
TERM_BEGIN, TERM_END = TERM_PIECES = ("\u27e8=\u27e9", "\u27e8/\u27e9")

SPACE = "\u2581"  # as pieces have it

#: A tag is a piece of its own, `<NAME>`, that stands before the first segment of a source and says what is wanted.
TAG = re.compile(r"<([A-Za-z0-9][A-Za-z0-9_.-]*)>")
_TAKEN = re.compile(r"<(pad|unk|s|sep[023]?|0x[0-9A-F]{2})>")

Beads = tuple[tuple[int, int], ...]  # segments of source and target that belong together, () where all are one to one


def consumed(tokens: Tensor, counted: bool) -> Tensor:
    """Source segments that each target token consumes: long, of the shape of tokens; 0 where it is no separator."""
    one = (tokens == SEP).long()
    return one + 2 * (tokens == SEP2) + 3 * (tokens == SEP3) if counted else one


def is_separator(tokens: Tensor, counted: bool) -> Tensor:
    """Whether each target token ends a segment: bool, of the shape of tokens."""
    return (tokens >= SEP) & (tokens <= SEP3) if counted else tokens == SEP


def steps_of(token: int, counted: bool) -> int | None:
    """How many source segments a target token consumes; None where it is no separator."""
    if counted:
        return SEPARATORS.index(token) if token in SEPARATORS else None
    return 1 if token == SEP else None


def tag_name(tag: str) -> str:
    """The name of a tag, given as `2es` or as its piece `<2es>`. Raises ValueError for what can be none."""
    piece = tag if tag.startswith("<") else f"<{tag}>"
    if (found := TAG.fullmatch(piece)) is None:
        raise ValueError(f"{tag!r:.60}: wanted a letter or digit and then letters, digits, _ . or - (2es, bt, bible)")
    if _TAKEN.fullmatch(piece):
        raise ValueError(f"{tag!r:.60}: {piece} is a piece already, with a meaning of its own: choose another name")
    return found[1]


@lru_cache(maxsize=1024)
def separators(source: int, target: int, counted: bool) -> tuple[tuple[int, ...], ...]:
    """What ends each target segment of a bead of so many source and target segments.

    The source segments are spread evenly, the later ones first: (1, 2) gives `<sep0>`, `<sep>`; (3, 2) `<sep>`,
    `<sep2>`. More than three at once are written as several separators, that is with empty target segments; so is a
    bead without target segments, as one.
    """
    if not counted:
        return ((SEP,),) * target
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


def check_beads(beads: Sequence[Sequence[int]], source: int, target: int) -> str | None:
    """What is wrong with the beads of a document of so many segments, in words; None where nothing is."""
    for number, bead in enumerate(beads):
        if len(bead) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in bead):
            return f"bead {number} is {list(bead)}: wanted [source segments, target segments], 0 or more of each"
        if not any(bead):
            return f"bead {number} is [0, 0]: leave it out"
    sums = [sum(bead[side] for bead in beads) for side in (0, 1)]
    if sums != [source, target]:
        return f"its beads hold {sums[0]} source and {sums[1]} target segments, the document has {source} and {target}"
    return None
