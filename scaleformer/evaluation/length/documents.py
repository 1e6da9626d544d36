"""The same test text as documents of different lengths: cut and joined at segment boundaries, every segment once.

The segments of the test documents form one sequence. For each length it is cut into pseudo-documents, across document
boundaries too, so that all sets hold the same text and differ only in length.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.evaluation.length.views import Unit
from scaleformer.text.documents import Document

TIMES = (0.25, 0.5, 1, 2, 4, 8, 16)


class TooLong(ValueError):
    """The text is shorter than the requested length."""


@dataclass(frozen=True)
class TestText:
    """All segments of the test documents in one sequence.

    starts                        (documents + 1,) the first segment of each document
    source_tokens, target_tokens  (segments,) tokens of each, `<sep>` included
    """

    ids: tuple[str, ...]
    starts: tuple[int, ...]
    source: tuple[str, ...]
    target: tuple[str, ...]
    source_tokens: tuple[int, ...]
    target_tokens: tuple[int, ...]

    __test__ = False  # pytest

    @classmethod
    def of(cls, documents: Sequence[Document], source: Tokenizer, target: Tokenizer) -> TestText:
        """Each bead is a segment here. Raises ValueError without documents, or where segment counts of source and
        target differ."""
        if not documents:
            raise ValueError("there are no test documents")
        documents = [d.one_to_one() for d in documents]
        for d in documents:
            if len(d.source) != len(d.target):
                raise ValueError(
                    f"document {d.id!r} has {len(d.source)} source segments and {len(d.target)} target segments: "
                    "they must be aligned one to one"
                )
        sources = [s for d in documents for s in d.source]
        targets = [s for d in documents for s in d.target]
        return cls(
            tuple(d.id for d in documents),
            tuple(accumulate((len(d.source) for d in documents), initial=0)),
            tuple(sources),
            tuple(targets),
            tuple(len(tokens) + 1 for tokens in source.encode_batch(sources)),
            tuple(len(tokens) + 1 for tokens in target.encode_batch(targets)),
        )

    def __len__(self) -> int:
        return len(self.source)

    def document(self, start: int, stop: int) -> TestDocument:
        """Segments start to stop - 1 as a document."""
        return TestDocument(
            self._name(start, stop),
            start,
            self.source[start:stop],
            self.target[start:stop],
            sum(self.source_tokens[start:stop]) + 1,
            sum(self.target_tokens[start:stop]) + 1,
        )

    def _name(self, start: int, stop: int) -> str:
        first, last = (bisect_right(self.starts, place) - 1 for place in (start, stop - 1))
        if first != last:
            return f"{self.ids[first]}[{start - self.starts[first]}]..{self.ids[last]}[{stop - 1 - self.starts[last]}]"
        if (start, stop) == (self.starts[first], self.starts[first + 1]):
            return self.ids[first]
        return f"{self.ids[first]}[{start - self.starts[first]}:{stop - self.starts[first]}]"


@dataclass(frozen=True)
class TestDocument:
    """Segments `start`, `start` + 1, ... of the test text. Token counts include every `<sep>` and the `</s>`."""

    id: str
    start: int
    source: tuple[str, ...]
    target: tuple[str, ...]
    source_tokens: int
    target_tokens: int

    __test__ = False  # pytest

    @property
    def tokens(self) -> int:
        """The tokens of the longer side."""
        return max(self.source_tokens, self.target_tokens)


@dataclass(frozen=True)
class LengthSpec:
    """A length: `size` tokens of the longer side, or segments; for unit "document", whole documents and size None.

    times: size divided by the trained length, None where that is unknown or in a different unit.
    """

    unit: str
    size: int | None
    times: float | None = None

    @property
    def label(self) -> str:
        """A unique label that is safe in file names."""
        if self.unit == "document":
            return "whole"
        return "segment" if (self.unit, self.size) == ("segments", 1) else f"{self.size}-{self.unit}"


@dataclass(frozen=True)
class LengthSet:
    """The documents of one length; `available`: how many there were before sampling."""

    spec: LengthSpec
    documents: tuple[TestDocument, ...]
    available: int

    @property
    def overlong(self) -> int:
        """How many documents exceed the size; each is a single segment."""
        size = self.spec.size
        return sum(d.tokens > size for d in self.documents) if self.spec.unit == "tokens" and size else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        sides = {name: [getattr(d, name) for d in self.documents] for name in ("source_tokens", "target_tokens")}
        return {
            "label": self.spec.label, "unit": self.spec.unit, "size": self.spec.size, "times": self.spec.times,
            "ids": [d.id for d in self.documents], "documents": len(self.documents), "available": self.available,
            "segments": sum(len(d.source) for d in self.documents), "overlong": self.overlong,
            **{name: {"mean": sum(n) / len(n), "max": max(n)} for name, n in sides.items()},
        }  # fmt: skip


def trained_length(config: Mapping[str, Any]) -> tuple[Unit, int] | None:
    """Unit and size of the longest training example, from the configuration of a run; None if unknown: the most
    segments of `data.join_segments`, else `data.max_tokens`."""
    data = config.get("data") or {}
    if data.get("level") == "segment":
        return "segments", 1
    if data.get("join_segments"):
        return "segments", int(data["join_segments"][1])
    return ("tokens", int(data["max_tokens"])) if data.get("max_tokens") else None


def default_lengths(trained: tuple[str, int]) -> list[LengthSpec]:
    """A segment, 1/4 to 16 times the trained length, and whole documents."""
    unit, size = trained
    specs = [LengthSpec("segments", 1, 1 / size if unit == "segments" else None)]
    for times in TIMES:
        spec = LengthSpec(unit, max(round(times * size), 1), times)
        if spec.label not in [known.label for known in specs]:
            specs.append(spec)
    return [*specs, LengthSpec("document", None)]


def parse_lengths(
    lengths: Sequence[Any] | None, segments: Sequence[Any] | None, trained: tuple[str, int] | None
) -> list[LengthSpec]:
    """Parse lengths: tokens, "segment" or "whole" in `lengths`, numbers of segments in `segments`, each once. Raises
    ValueError for anything else."""
    specs: list[LengthSpec] = []
    for name, unit, values in (("lengths", "tokens", lengths or []), ("segments", "segments", segments or [])):
        if isinstance(values, (str, int)):
            values = [values]
        for value in values:
            if name == "lengths" and value in ("segment", "whole"):
                spec = LengthSpec("segments", 1) if value == "segment" else LengthSpec("document", None)
            elif isinstance(value, int) and not isinstance(value, bool) and value >= (3 if unit == "tokens" else 1):
                times = value / trained[1] if trained and trained[0] == unit else None
                spec = LengthSpec(unit, value, times)
            else:
                wanted = "an int of at least 3, segment or whole" if name == "lengths" else "an int of at least 1"
                raise ValueError(f"{name} has {value!r}: each must be {wanted}")
            if spec.label not in [known.label for known in specs]:
                specs.append(spec)
    return specs


def make_length(text: TestText, spec: LengthSpec, documents: int | None = None, seed: int = 1) -> LengthSet:
    """The pseudo-documents of a length: each takes as many segments as fit; the last takes the rest.

    documents: keep at most this many, a seeded sample in order, without the rest where possible.
    Raises TooLong where the whole text is shorter.
    """
    cuts = _cuts(text, spec)
    if spec.size is not None and len(cuts) == 2 and spec.size > 1:
        whole = text.document(0, len(text))
        held = whole.tokens if spec.unit == "tokens" else len(text)
        if held < spec.size:
            raise TooLong(f"{spec.size} {spec.unit}: longer than all test documents together ({held})")
    found = [text.document(start, stop) for start, stop in pairwise(cuts)]
    available = len(found)
    if documents is not None and documents < available:
        pool = range(available if spec.size in (None, 1) else available - 1)
        found = [found[i] for i in sorted(random.Random(f"test documents {seed}").sample(pool, documents))]
    return LengthSet(spec, tuple(found), available)


def _cuts(text: TestText, spec: LengthSpec) -> list[int]:
    if spec.size is None:
        return list(text.starts)
    if spec.unit == "segments":
        return [*range(0, len(text), spec.size), len(text)]
    sums = [list(accumulate(side, initial=0)) for side in (text.source_tokens, text.target_tokens)]
    cuts = [0]
    while cuts[-1] < len(text):
        start = cuts[-1]
        end = min(bisect_right(side, side[start] + spec.size - 1) - 1 for side in sums)
        cuts.append(max(end, start + 1))
    return cuts


def choose_lengths(
    text: TestText, specs: Sequence[LengthSpec], strict: bool, documents: int | None = None, seed: int = 1
) -> tuple[list[LengthSet], list[dict[str, str]]]:
    """The sets of all lengths, shortest first, and which were left out and why.

    Sets of identical documents are merged. strict: raise TooLong instead of leaving out.
    """
    sets: list[LengthSet] = []
    left_out: list[dict[str, str]] = []
    for spec in specs:
        try:
            made = make_length(text, spec, documents, seed)
        except TooLong as error:
            if strict:
                raise
            left_out.append({"label": spec.label, "reason": str(error)})
            continue
        same = next((s.spec.label for s in sets if s.documents == made.documents), None)
        if same is not None:
            left_out.append({"label": spec.label, "reason": f"the same documents as {same}"})
        else:
            sets.append(made)
    sets.sort(key=lambda s: (s.spec.unit == "document", sum(d.source_tokens for d in s.documents) / len(s.documents)))
    return sets, left_out
