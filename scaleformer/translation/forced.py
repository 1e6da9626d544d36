"""Texts that a translation is forced to have: those of fixed segments, and the beginnings of others; and what is known
besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.vocabulary import SEP

Texts = Mapping[int, str]


@dataclass(frozen=True)
class ForcedTexts:
    """The forced texts of one document, by the numbers of source segments from 0.

    fixed  whole translations of segments, returned unchanged; later segments have them as context
    begin  beginnings of translations, which the model continues
    known  sources and translations that belong to the document and are not in it, such as the translated messages of a
           catalogue; they fill the cache of `decoding.cache`, as fixed segments do
    """

    fixed: Texts = field(default_factory=dict)
    begin: Texts = field(default_factory=dict)
    known: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fixed or self.begin)

    def part(self, first: int, stop: int) -> ForcedTexts:
        """Those of the segments from `first` up to `stop`, renumbered from 0."""
        fixed, begin = ({n - first: text for n, text in side.items() if first <= n < stop} for side in self._sides())
        return ForcedTexts(fixed, begin)

    def tokens(self, tokenizer: Tokenizer) -> dict[int, list[int]]:
        """The tokens of each text, as `decode` takes them: those of fixed segments end with `<sep>`."""
        numbers = [*self.fixed, *self.begin]
        encoded = tokenizer.encode_batch([*self.fixed.values(), *self.begin.values()])
        forced = {n: [*words, SEP] if n in self.fixed else words for n, words in zip(numbers, encoded, strict=True)}
        return {n: tokens for n, tokens in forced.items() if tokens}

    def restore(self, segments: Sequence[str], tokenizer: Tokenizer) -> list[str]:
        """The segments of a translation with the forced texts as they were given, which the tokenizer may normalize."""
        restored = list(segments)
        for n, text in enumerate(segments):
            if n in self.fixed:
                restored[n] = self.fixed[n]
            elif text.startswith(written := tokenizer.decode(tokenizer.encode(self.begin.get(n, "")))):
                restored[n] = self.begin.get(n, "") + text[len(written) :]
        return restored

    def fault(self, segments: int) -> str | None:
        """What is wrong with the texts for a document of so many segments; None if nothing is."""
        for name, side in zip(("fixed", "begin"), self._sides(), strict=True):
            for n, text in side.items():
                if not isinstance(n, int) or not 0 <= n < segments:
                    return f"{name}[{shown(n)}]: no such source segment: there are {segments}, numbered from 0"
                if not isinstance(text, str):
                    return f"{name}[{n}] is {type(text).__name__}, wanted a string"
                if any("\ud800" <= character <= "\udfff" for character in text):
                    return f"{name}[{n}] has a lone surrogate (\\ud800-\\udfff)"
        if any("\ud800" <= character <= "\udfff" for pair in self.known for text in pair for character in text):
            return "known has a lone surrogate (\\ud800-\\udfff)"
        if both := sorted(set(self.fixed) & set(self.begin)):
            return f"segment {both[0]} is in both fixed and begin: leave out one of them"
        return None

    def _sides(self) -> tuple[Texts, Texts]:
        return self.fixed, self.begin


def force(fixed: Sequence[Texts] | None, begin: Sequence[Texts] | None, count: int) -> list[ForcedTexts]:
    """The forced texts of `count` documents from their fixed segments and beginnings, either None for nothing. Raises
    ValueError for another number of entries."""
    for name, side in (("fixed", fixed), ("begin", begin)):
        if side is not None and len(side) != count:
            raise ValueError(f"{name} has {len(side)} entries for {count} documents: wanted one for each")
        if not all(isinstance(one, Mapping) for one in side or ()):
            raise ValueError(f"{name} has no texts by segment: wanted for each document as in {{12: 'text'}}")
    nothing: list[Texts] = [{}] * count
    return [ForcedTexts(*sides) for sides in zip(fixed or nothing, begin or nothing, strict=True)]


def read_draft(record: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The "draft" of a JSON Lines document: texts that its segments' translations probably have. As `read_forced`."""
    draft = record.get("draft", [])
    if not isinstance(draft, list) or not all(isinstance(text, str) for text in draft):
        raise DataError(f"{where}: 'draft' is {shown(draft)}, wanted a list of texts, one for each segment")
    return tuple(draft)


def read_forced(record: Mapping[str, Any], where: str, segments: int) -> ForcedTexts:
    """The "fixed" and "begin" of a document of this many segments, `{"12": "text"}`, and its "known", `[["source",
    "translation"]]`. DataErrors begin with `where`."""
    sides: list[dict[Any, str]] = []
    for name in ("fixed", "begin"):
        side = record.get(name, {})
        if not isinstance(side, dict):
            wanted = 'an object of texts by the numbers of their segments, {"12": "text"}'
            raise DataError(f"{where}: {name!r} is {type(side).__name__}, wanted {wanted}")
        sides.append({int(key) if key.isdecimal() and key.isascii() else key: text for key, text in side.items()})
        if len(sides[-1]) < len(side):
            raise DataError(f"{where}: {name!r} has a segment twice, with and without zeros: leave one of them")
    known = record.get("known", [])
    pairs = known if isinstance(known, list) else [known]
    if not all(isinstance(pair, list) and [*map(type, pair)] == [str, str] for pair in pairs):
        raise DataError(f"{where}: 'known' is {shown(known)}, wanted a list of [source, translation]")
    forced = ForcedTexts(sides[0], sides[1], tuple((source, text) for source, text in pairs))
    if fault := forced.fault(segments):
        raise DataError(f"{where}: {fault}")
    return forced
