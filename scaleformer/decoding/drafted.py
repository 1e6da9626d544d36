"""The texts of a document that is decoded from drafts: which stand, which may still change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scaleformer.vocabulary import EOS, MOST, SEP, steps_of


@dataclass
class DraftedDocument:
    """A document and the present texts of its segments, by the numbers of source segments.

    parts    source tokens of each segment, with `<sep>`; the tag is in the first
    forced   tokens with which translations of segments begin, as in `decode`
    texts    tokens of each, with the separator; None where the one before translates it, too
    spare    the last text of each, for when that ends
    first    the draft of each; without one the text that it is given first, None before
    decoded  in which round each was last found to be what the model writes; changed: in which it last changed
    cut      whether the length limit ended each
    number   of the document in its batch
    """

    parts: list[list[int]]
    forced: Mapping[int, Sequence[int]]
    spare: list[tuple[int, ...]]
    first: list[tuple[int, ...] | None]
    number: int = 0
    texts: list[tuple[int, ...] | None] = field(init=False)
    decoded: list[int] = field(init=False)
    changed: list[int] = field(init=False)
    cut: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.parts)
        self.texts, self.decoded, self.changed = list(self.spare), [-1] * n, [0] * n
        self.cut = [False] * n
        self.join()

    def join(self) -> None:
        """Let each text stand for as many source segments as its separator says."""
        n = 0
        while n < len(self.texts):
            if self.texts[n] is None:
                self.texts[n], self.decoded[n] = self.spare[n], -1
            steps = max(1, steps_of(self.spare[n][-1]) or 1)
            for later in range(n + 1, min(n + steps, len(self.texts))):
                self.texts[later], self.cut[later] = None, False
            n += steps

    def change(self, n: int, text: tuple[int, ...], turn: int) -> None:
        """A segment was decoded in this round, after the texts that stood before it."""
        self.decoded[n] = turn
        self.first[n] = self.first[n] or text
        if text != self.texts[n]:
            self.texts[n] = self.spare[n] = text
            self.changed[n] = turn

    def settled(self) -> list[bool]:
        """Which segments are what the model writes after the present texts before them."""
        latest, found = -1, []
        for decoded, changed in zip(self.decoded, self.changed, strict=True):
            found.append(decoded > latest)
            latest = max(latest, changed)
        return found

    def length(self, n: int) -> int:
        """About how many tokens a segment has: those of its text, before there is one those of its source."""
        return len(self.parts[n] if self.first[n] is None else self.spare[n])

    def given(self, n: int) -> bool:
        """Whether a segment is fixed."""
        return SEP in self.forced.get(n, ())

    def rest(self, n: int) -> tuple[list[int], dict[int, Sequence[int]]]:
        """The source from a segment on, as far as its translation may reach, and what is forced there."""
        stop = min(n + MOST, len(self.parts))
        source = [token for part in self.parts[n:stop] for token in part]
        return [*source, EOS], {at - n: self.forced[at] for at in range(n, stop) if at in self.forced}


def make_document(
    source: Sequence[int], draft: Sequence[Sequence[int] | None], forced: Mapping[int, Sequence[int]], number: int = 0
) -> DraftedDocument:
    parts: list[list[int]] = [[]]
    for token in source:
        parts[-1].append(token)
        if token == SEP:
            parts.append([])
    spare = []
    for n, words in enumerate(draft):
        given = tuple(forced.get(n, ()))
        text = given if SEP in given else (*given, *(words or ())[len(given) :])
        spare.append(text if text and steps_of(text[-1]) else (*text, SEP))
    first = [None if words is None else text for words, text in zip(draft, spare, strict=True)]
    return DraftedDocument(parts[:-1], forced, spare, first, number)


def final_tokens(document: DraftedDocument) -> list[int]:
    """The tokens of all segments up to the first that may still change."""
    tokens: list[int] = []
    for text, settled in zip(document.texts, document.settled(), strict=True):
        if text is not None and not settled:
            break
        tokens += text or ()
    return tokens


class Row(NamedTuple):
    """A segment to decode: its document's place among those at hand, its number, how many tokens of its text stay."""

    document: int
    number: int
    begun: int
