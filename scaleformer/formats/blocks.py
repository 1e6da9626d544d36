"""Blocks of prose of a document, with their places in the file and spans for what is not prose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from scaleformer.text.icu import inner_messages
from scaleformer.text.spans import Style, find_spans

KINDS = ("title", "paragraph", "item", "cell", "code")
MARK = "\ufffc"  # stands for a span in the text of a block
SPACES = " \t\n\r\f\v"
_TAG = re.compile(r"<(/?)([A-Za-z\d][\w:.-]*)[^<>]*?(/?)>")
_TWICE = ("*", "_", "**", "__", "***")  # marks that begin and end the same way
#: Why a message cannot be translated (`BlockBuilder.messages`).
CHOICES = "units with a plural or select inside a sentence"
_SOFT_HYPHEN = "\u00ad"


@dataclass(frozen=True)
class Span:
    """An element within prose that is copied unchanged.

    content  depends on the format
    pair     the number of the pair that it begins or ends (emphasis, a link, a tag); None for a single span
    opens    whether it begins the pair
    changed  whether content differs from the file, so that the span has to be written with its segment
    shown    what a text to train on has in its place; None for content
    """

    content: Any
    pair: int | None = None
    opens: bool = False
    changed: bool = False
    shown: str | None = None


@dataclass(frozen=True)
class Block:
    """A stretch of prose that sentences do not cross: a heading, a paragraph, an item, a cell.

    text     with a `MARK` for each of the spans, white space as single spaces; "" for code
    origins  where each character of the text begins and ends in the file
    kind     one of `KINDS`
    flags    if it belongs to a message of a program: the flags of gettext for its placeholders, such as "c-format", and
             "icu" for one in a plural or select
    """

    text: str
    spans: tuple[Span, ...]
    origins: tuple[tuple[int, int], ...]
    kind: str = "paragraph"
    flags: frozenset[str] | None = None

    def origin(self, start: int, stop: int) -> tuple[int, int]:
        """The position of text[start:stop], not empty, in the file."""
        return self.origins[start][0], self.origins[stop - 1][1]


CODE = Block("", (), (), "code")


class BlockBuilder:
    """Collects the characters and spans of a block, each with its place in the content of the file."""

    def __init__(self, kind: str = "paragraph", flags: frozenset[str] | None = None) -> None:
        self.kind, self.flags = kind, flags
        self._parts: list[tuple[str, int, int, str | Span]] = []  # with its form in the file, or the span

    def text(self, text: str, start: int) -> None:
        """Add characters that are literal in the file, from `start` on."""
        for place, character in enumerate(text, start):
            self.character(character, place, place + 1)

    def character(self, character: str, start: int, stop: int, written: str | None = None) -> None:
        """Add a character that may be encoded in the file, such as `&amp;` for "&"."""
        if character == MARK:
            self.span(character, start, stop)
        elif character == _SOFT_HYPHEN:  # tells a model nothing, and goes with the word
            *before, end, form = self._parts[-1] if self._parts else ("", 0, -1, "")
            if end == start and isinstance(form, str) and not form.endswith(written or character):
                self._parts[-1] = (*before, stop, form + (written or character))  # type: ignore[assignment]
        else:
            self._parts.append((character, start, stop, written or character))

    def span(
        self, content: Any, start: int, stop: int, pair: int | None = None, opens: bool = False, changed: bool = False,
        shown: str | None = None,
    ) -> None:  # fmt: skip
        """Add a span at this place."""
        self._parts.append((MARK, start, stop, Span(content, pair, opens, changed, shown)))

    def __len__(self) -> int:
        return len(self._parts)

    def enclose(self, first: int, start: int, stop: int) -> None:
        """Let the parts from number `first` on stand for content[start:stop], which has more than they do."""
        places = [place for place in range(first, len(self._parts)) if self._parts[place][0] not in SPACES]
        if places:
            character, _, end, written = self._parts[places[0]]
            self._parts[places[0]] = character, start, end, written
            character, begin, _, written = self._parts[places[-1]]
            self._parts[places[-1]] = character, begin, stop, written

    def build(self) -> Block | None:
        """The block, with URLs, placeholders, ... as spans, too; None if it has no letters."""
        parts: list[tuple[str, int, int, str | Span]] = []
        for space, run in groupby(self._parts, lambda part: part[0] in SPACES):
            some = list(run)
            parts += [(" ", some[0][1], some[-1][2], " ")] if space else some
        parts = [part for n, part in enumerate(parts) if part[0] != " " or 0 < n < len(parts) - 1]
        text = "".join(part[0] for part in parts)
        found: list[tuple[str, int, int, str | Span]] = []
        own: list[int] = []  # spans found here
        place = 0
        style: Style = "prose" if self.flags is None else "icu" if "icu" in self.flags else "message"
        for start, stop in find_spans(text, style):
            if MARK not in text[start:stop]:
                found += parts[place:start]
                own.append(len(found))
                span = Span("".join(str(part[3]) for part in parts[start:stop]), shown=text[start:stop])
                found.append((MARK, parts[start][1], parts[stop - 1][2], span))
                place = stop
        found += parts[place:]
        spans = {n: part[3] for n, part in enumerate(found) if isinstance(part[3], Span)}
        _pair_up(spans, own)
        text = "".join(part[0] for part in found)
        if not any(character.isalpha() for character in text):
            return None
        return Block(text, tuple(spans.values()), tuple(part[1:3] for part in found), self.kind, self.flags)

    def messages(self) -> list[Block] | None:
        """The block of a message of a program, or those of the messages in a plural or select of ICU; None if these
        stand in a sentence."""
        if (places := inner_messages("".join(part[0] for part in self._parts))) is None:
            return None
        own = frozenset(["icu"] if places != [(0, len(self._parts))] else [])
        blocks: list[Block] = []
        for start, stop in places:
            inner = BlockBuilder(self.kind, own.union(self.flags or ()))
            inner._parts = self._parts[start:stop]
            blocks += filter(None, [inner.build()])
        return blocks


def _pair_up(spans: dict[int, Span], places: Sequence[int]) -> None:
    """Pair the opening and closing tags and marks at these places."""
    opened: list[tuple[str, int]] = []  # the innermost last
    names: Counter[str] = Counter()
    for place in places:
        content = spans[place].content
        tag = _TAG.fullmatch(content)
        link_end = content.startswith(("](", "]["))
        name = tag[2] if tag else "[" if content.endswith("[") or link_end else content
        ends = bool(tag[1]) if tag else link_end or (content in _TWICE and names[name] > 0)
        begins = not tag[3] if tag else content in ("[", "![", *_TWICE)
        while ends and names[name]:  # up to that tag, and those inside it
            last, first = opened.pop()
            names[last] -= 1
            if last == name:
                spans[first] = replace(spans[first], pair=-1 - first, opens=True)
                spans[place] = replace(spans[place], pair=-1 - first)
                break
        if begins and not ends:
            opened.append((name, place))
            names[name] += 1
