"""A translation memory: earlier translations, looked up by exact source segment."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from scaleformer.formats.bitexts import Bitext, read_bitext
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.lines import Input
from scaleformer.formats.recognition import BITEXTS, FORMATS, recognise
from scaleformer.system.display import counted
from scaleformer.system.errors import DataError
from scaleformer.text.spans import around, mask, span_runs
from scaleformer.translation.forced import ForcedTexts
from scaleformer.vocabulary import PLACEHOLDERS

OTHER_SPANS = "left out: their code, links or marks differ"
FIXED = "fixed"


class Masked(NamedTuple):
    """A text with placeholders, and the span behind each placeholder; None for a span that is not text."""

    text: str
    spans: tuple[str | None, ...]


class TranslationMemory:
    """Earlier translations by source segment, both with their spans and with placeholders for them. White space is
    ignored in the comparison. The most frequent translation wins, and the first of equally frequent ones; of JSON
    Lines, in which corrections are kept, the last one."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._texts: dict[str, Counter[str]] = defaultdict(Counter)
        self._masked: dict[str, Counter[Masked | None]] = defaultdict(Counter)
        for source, target in pairs:
            self.add(source, target)

    def add(self, source: str, target: str, last: bool = False) -> None:
        """Add a translation; last: it is to win."""
        ours = masked(_normal(source))
        if not ours.text:
            return
        found: list[tuple[Counter[Any], Any]] = [(self._texts[_normal(source)], target)]
        found.append((self._masked[ours.text], renumbered(masked(_normal(target)), ours)))
        for counts, key in found:
            counts[key] = max(counts.values(), default=0) + 1 if last else counts[key] + 1

    @classmethod
    def read(cls, path: str, languages: tuple[str | None, str | None] = (None, None)) -> TranslationMemory:
        """Read TMX, PO, XLIFF, CSV, TSV, Parquet or JSON Lines, recognised like any input. Tables need the columns
        source and target; a TSV without a header has document, source, target.

        languages: source and target, since TMX may hold more. Raises DataError in one line.
        """
        found = recognise(Input(path).begin, Path(path).name)
        lines = found.name == "jsonl"
        if found.name not in BITEXTS and not lines:
            wanted = ", ".join(FORMATS[name].title for name in (*BITEXTS, "jsonl"))
            raise DataError(f"translation_memory={path}: {found.title}, wanted one of {wanted}")
        dropped: Counter[str] = Counter()
        bitext = Bitext(found.name, path, languages=languages)
        memory = cls(())
        for document in read_jsonl(path) if lines else read_bitext(bitext, dropped):
            for source, target in document.parts():
                memory.add(" ".join(source), " ".join(target), last=lines)
        if not memory._texts:
            raise DataError(f"translation_memory={path}: no segment with a translation in the languages of the model")
        if dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            print(f"translation_memory={path}: left out: {reasons}", file=sys.stderr)
        return memory

    @property
    def entries(self) -> dict[str, dict[str, int]]:
        """How often each source has each translation."""
        return {source: dict(counts) for source, counts in self._texts.items()}

    def fill(self, forced: ForcedTexts, segments: Sequence[str | Masked], counts: Counter[str]) -> ForcedTexts:
        """Fix the segments that the memory knows, unless `forced` already fixes or begins them.

        segments  texts, as they are or with placeholders
        counts    counts segments by the outcome of the look-up
        """
        fixed = dict(forced.fixed)
        for n, segment in enumerate(segments):
            if n in forced.fixed or n in forced.begin:
                continue
            if isinstance(segment, str):
                found = _most(self._texts.get(_normal(segment), Counter()))
            else:
                found = self._find_masked(segment, counts)
            if found is not None:
                fixed[n] = found
                counts[FIXED] += 1
        return replace(forced, fixed=fixed)

    def _find_masked(self, segment: Masked, counts: Counter[str]) -> str | None:
        entries = self._masked.get(_normal(segment.text), Counter())
        fit = Counter({target.text: n for target, n in entries.items() if target and target.spans == segment.spans})
        if entries and not fit:
            counts[OTHER_SPANS] += 1
        return _most(fit)


def fill_forced(
    memory: TranslationMemory | None, forced: Sequence[ForcedTexts], documents: Sequence[Sequence[str | Masked]]
) -> list[ForcedTexts]:
    """`TranslationMemory.fill` for all documents; reports the number of fixed segments on stderr."""
    if memory is None:
        return list(forced)
    counts: Counter[str] = Counter({FIXED: 0})
    filled = [memory.fill(one, segments, counts) for one, segments in zip(forced, documents, strict=True)]
    parts = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
    print(f"translation memory: of {counted(sum(map(len, documents)), 'segment')} {parts}", file=sys.stderr)
    return filled


def masked(text: str) -> Masked:
    """A text with placeholders for its spans, adjacent ones sharing one; without any if there are too many spans."""
    places = [around(run) for run in span_runs(text)]
    if len(places) > len(PLACEHOLDERS):
        return Masked(text, ())
    return Masked(mask(text, zip(places, PLACEHOLDERS, strict=False)), tuple(text[slice(*place)] for place in places))


def renumbered(target: Masked, source: Masked) -> Masked | None:
    """The target with the placeholders of the source for the same spans; None if the spans differ."""
    if Counter(target.spans) != Counter(source.spans):
        return None
    free = list(range(len(source.spans)))
    numbers = {}
    for placeholder, span in zip(PLACEHOLDERS, target.spans, strict=False):
        number = next(n for n in free if source.spans[n] == span)
        free.remove(number)
        numbers[placeholder] = PLACEHOLDERS[number]
    pattern = "|".join(PLACEHOLDERS)
    return Masked(re.sub(pattern, lambda found: numbers.get(found[0], found[0]), target.text), source.spans)


def _normal(text: str) -> str:
    return " ".join(text.split())


def _most(counts: Counter[str]) -> str | None:
    return max(counts, key=counts.__getitem__) if counts else None
