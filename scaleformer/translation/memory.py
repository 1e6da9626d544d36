"""A translation memory: segments that were translated before, found again by their exact source."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from scaleformer.data.errors import DataError
from scaleformer.data.readers.bitexts import BITEXTS, Bitext, read_bitext
from scaleformer.data.readers.documents import read_tsv
from scaleformer.data.readers.formats import FORMATS, recognise
from scaleformer.data.readers.lines import Input
from scaleformer.data.readers.tables import Columns, has_names
from scaleformer.data.spans import find_spans
from scaleformer.translation.told import Told
from scaleformer.vocabulary import PLACEHOLDERS

OTHER_SPANS = "left out: their code, links or marks differ"
FIXED = "fixed"


class Masked(NamedTuple):
    """A text with placeholders, and the span that each of them stands for; None for one that is no text."""

    text: str
    spans: tuple[str | None, ...]


class Memory:
    """Translations by their source segments, which match where they are equal but for white space. Of several
    translations the most frequent one counts, of equally frequent ones the first."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._texts: dict[str, Counter[str]] = defaultdict(Counter)
        self._masked: dict[str, Counter[Masked | None]] = defaultdict(Counter)
        for source, target in pairs:
            if not source.strip():
                continue
            self._texts[_normal(source)][target] += 1
            ours = mask(_normal(source))
            self._masked[ours.text][_renumbered(mask(_normal(target)), ours)] += 1

    @classmethod
    def read(cls, path: str, languages: tuple[str | None, str | None] = (None, None)) -> Memory:
        """From TMX, PO, XLIFF, CSV, TSV or Parquet, recognised as any input is; tables with columns source and target,
        a TSV without names with document, source, target.

        languages: those of source and target, which TMX may have more of. Raises DataError of one line.
        """
        found = recognise(Input(path).begin, Path(path).name)
        if found.name not in BITEXTS:
            wanted = ", ".join(FORMATS[name].title for name in BITEXTS)
            raise DataError(f"memory={path}: {found.title}, wanted one of {wanted}")
        dropped: Counter[str] = Counter()
        if found.name == "tsv" and not has_names(Path(path), Columns()):
            documents = read_tsv(path, dropped)
        else:
            documents = read_bitext(Bitext(found.name, path, languages=languages), dropped)
        memory = cls(pair for document in documents for pair in zip(document.source, document.target, strict=True))
        if not memory._texts:
            raise DataError(f"memory={path}: no segment with a translation, or none in the languages of the model")
        if dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            print(f"memory={path}: left out: {reasons}", file=sys.stderr)
        return memory

    def fill(self, told: Told, segments: Sequence[str | Masked], counts: Counter[str]) -> Told:
        """What a document is told, and the translations that are here fixed where it is told nothing.

        segments  its texts, as a file of lines has them, or with placeholders
        counts    segments by what became of their match
        """
        fixed = dict(told.fixed)
        for n, segment in enumerate(segments):
            if n in told.fixed or n in told.begin:
                continue
            found = self._find(segment) if isinstance(segment, str) else self._find_masked(segment, counts)
            if found is not None:
                fixed[n] = found
                counts[FIXED] += 1
        return Told(fixed, told.begin)

    def _find(self, segment: str) -> str | None:
        return _most(self._texts.get(_normal(segment), Counter()))

    def _find_masked(self, segment: Masked, counts: Counter[str]) -> str | None:
        entries = self._masked.get(_normal(segment.text), Counter())
        fit = Counter({target.text: n for target, n in entries.items() if target and target.spans == segment.spans})
        if entries and not fit:
            counts[OTHER_SPANS] += 1
        return _most(fit)


def recall(memory: Memory | None, told: Sequence[Told], documents: Sequence[Sequence[str | Masked]]) -> list[Told]:
    """`Memory.fill` of all documents; a line on stderr says how many segments it has fixed."""
    if memory is None:
        return list(told)
    counts: Counter[str] = Counter({FIXED: 0})
    filled = [memory.fill(one, segments, counts) for one, segments in zip(told, documents, strict=True)]
    parts = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
    print(f"memory: of {sum(map(len, documents)):,} segments {parts}", file=sys.stderr)
    return filled


def mask(text: str) -> Masked:
    """A text with placeholders for its spans, neighbours under one; without any where it needs more than there are."""
    pieces: list[str] = []
    spans: list[str] = []
    end = -1  # of the last span
    for start, stop in find_spans(text):
        if start == end:
            spans[-1] += text[start:stop]
        else:
            pieces.append(text[max(end, 0) : start])
            spans.append(text[start:stop])
        end = stop
    if len(spans) > len(PLACEHOLDERS):
        return Masked(text, ())
    pieces = [part for both in zip(pieces, PLACEHOLDERS, strict=False) for part in both]
    return Masked("".join([*pieces, text[max(end, 0) :]]), tuple(spans))


def _renumbered(target: Masked, source: Masked) -> Masked | None:
    """The target with the placeholders of the source, for the same spans; None where it has other ones."""
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
