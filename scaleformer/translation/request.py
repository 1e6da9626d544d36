"""What to translate and how, and the functions to call meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from scaleformer.decoding.config import DecodingConfig, MaxTokens, Mode
from scaleformer.decoding.drafts import Counts
from scaleformer.system.bars import Progress
from scaleformer.system.schema import check_type
from scaleformer.text.terms import Term, Terms, make_terms
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.translations import Translation


@dataclass(frozen=True)
class Request:
    """Documents to translate, each a list of segments, and how.

    decoding    the settings of the search
    names       of the documents, for warnings (default: their numbers from 0). Samples of a document depend on
                decoding.seed and its name only
    mode        "document", or "segment": translate each segment separately, so the segment count is the source's
    max_tokens  split documents between segments into pieces of at most this many source tokens (`<sep>` and `</s>`
                included), translate them separately and join them; a longer segment is a piece of its own
    tag         the target language, such as `2es`, for a model trained with tags; precedes every document, piece or
                segment that is translated separately. None for that of the translator
    forced      of each document, texts that its translation has to have; the model scores them and continues after
                them, limits and rules do not apply to them
    terms       target forms by source forms, for all documents or for each. Segments that lack one are translated
                again, the others do not change (`TermSearch`). Log-probability and score cover the final translation
    drafts      of each document, texts that its translation probably has, by the places of its segments; for others the
                translation of the segment by itself. The result is the same, sooner (`decode_drafts`)
    languages   of source and target, for the endings of terms; "" if unknown
    where       of each document, the places of its segments for warnings, such as FILE:LINE; () if unknown
    asked       of each document, terms that are not required in code and quotations; `terms` win

    Raises ValueError for documents that are not lists of strings, and for settings that do not fit together.
    """

    documents: Sequence[Sequence[str]]
    decoding: DecodingConfig
    names: Sequence[str] = ()
    mode: Mode = "document"
    max_tokens: int | None = None
    tag: str | None = None
    forced: Sequence[ForcedTexts] = ()
    terms: Terms | Sequence[Terms] = ()
    drafts: Sequence[Sequence[str]] = ()
    where: Sequence[Sequence[str]] = ()
    languages: tuple[str, str] = ("", "")
    asked: Sequence[Terms] = ()

    def __post_init__(self) -> None:
        _check_documents(self.documents)
        n_best, count = self.decoding.n_best, len(self.documents)
        check_type("mode", self.mode, Mode)
        check_type("max_tokens", self.max_tokens, MaxTokens | None)
        if self.max_tokens is not None and self.by_segment:
            raise ValueError(
                f"max_tokens={self.max_tokens} is for documents, mode={self.mode} for segments: set only one"
            )
        if n_best > 1 and not self.whole:
            raise ValueError(f"n_best={n_best}: only the best hypotheses of pieces can be joined; set n_best=1")
        for name in ("names", "forced", "terms", "asked", "drafts"):
            values = getattr(self, name)
            if values and not isinstance(values, Mapping) and len(values) != count:
                raise ValueError(f"{name} has {len(values)} entries for {count} documents: wanted one for each")
        if any(self.required) and not self.decoding.match_segments:
            raise ValueError("terms refer to source segments: set decoding.match_segments=true")
        if any(self.required) and n_best > 1:
            raise ValueError(f"n_best={n_best}: terms are enforced in one translation: set n_best=1")
        for number, one in enumerate(self.forced):
            if fault := one.fault(len(self.documents[number])):
                raise ValueError(f"document {number}: {fault}")
        _check_documents(self.drafts, "draft")
        if any(self.forced) and not self.decoding.match_segments:
            raise ValueError("fixed and begin refer to source segments: set decoding.match_segments=true")

    @property
    def by_segment(self) -> bool:
        """Whether each segment is translated by itself, at least at first."""
        return self.mode != "document"

    @property
    def whole(self) -> bool:
        """Whether each document is translated at once, in one piece."""
        return not self.by_segment and self.max_tokens is None

    @cached_property
    def required(self) -> list[tuple[Term, ...]]:
        """The terms of each document. Raises ValueError if they are malformed."""
        count = len(self.documents)
        if isinstance(self.terms, Mapping):
            given = [make_terms(self.terms, self.languages)] * count
        elif isinstance(self.terms, str) or not all(isinstance(some, Mapping) for some in self.terms):
            raise ValueError(f"terms is {self.terms!r:.60}: wanted as in {{'kernel': 'núcleo'}}, or a list of such")
        else:
            given = [make_terms(some, self.languages) for some in self.terms] or [()] * count
        asked = [make_terms(some, self.languages, prose=True) for some in self.asked] or [()] * count
        return [(*first, *then) for first, then in zip(given, asked, strict=True)]

    def part(self, documents: Sequence[int]) -> Request:
        """The same request for some of the documents."""
        lists = ("documents", "names", "forced", "terms", "asked", "drafts", "where")
        each = {name: some for name in lists if (some := getattr(self, name)) and not isinstance(some, Mapping)}
        some_of: dict[str, Any] = {name: [some[n] for n in documents] for name, some in each.items()}
        return replace(self, **some_of)

    def name(self, document: int) -> str:
        """The name of a document."""
        return self.names[document] if self.names else str(document)

    def place(self, document: int, segment: int) -> str:
        """What to call a segment in warnings."""
        if places := self.where[document] if self.where else ():
            return places[segment]
        return f"{self.name(document) if self.names else f'document {document}'}, segment {segment + 1}"


@dataclass(frozen=True)
class Listener:
    """Functions that a translation calls.

    progress  with the share of source tokens translated and the number of target tokens written so far
    finished  with each translation in document order, as soon as it and all before it are finished
    segments  from time to time for each unfinished document, with its number, the place of the first newly final
              segment and the texts of these segments (see `SegmentStreams`); if it returns False, the document is given
              up and its partial translation returned
    drafted   at the end, where documents were decoded from drafts
    """

    progress: Progress | None = None
    finished: Callable[[Translation], None] | None = None
    segments: Callable[[int, int, Sequence[str]], bool] | None = None
    drafted: Callable[[Counts], None] | None = None


_SURROGATE = re.compile("[\ud800-\udfff]")


def _check_documents(documents: Sequence[Sequence[str]], what: str = "document") -> None:
    wanted = f"wanted a list of {what}s, each a list of segments, each a string"
    if isinstance(documents, str) or not isinstance(documents, Sequence):
        raise ValueError(f"{what}s is {type(documents).__name__}: {wanted}")
    for number, segments in enumerate(documents):
        if isinstance(segments, str) or not isinstance(segments, Sequence):
            raise ValueError(f"{what} {number} is {type(segments).__name__}: {wanted}")
        for place, segment in enumerate(segments):
            if not isinstance(segment, str):
                raise ValueError(f"segment {place} of {what} {number} is {type(segment).__name__}: {wanted}")
            if not segment.isascii() and _SURROGATE.search(segment):
                raise ValueError(f"segment {place} of {what} {number} has a lone surrogate (\\ud800-\\udfff)")
