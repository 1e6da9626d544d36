"""What the translation of files is set up with: documents with the wishes of their files, and what all share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from scaleformer.decoding.config import DecodingConfig, Mode
from scaleformer.text.documents import Document
from scaleformer.text.terms import Terms
from scaleformer.translation.confidence import Confidence
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.one_form import in_one_form
from scaleformer.translation.request import Request
from scaleformer.translation.translation_memory import Masked, TranslationMemory, fill_forced
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator

Unsure = Literal["mark", "leave"]


@dataclass(frozen=True)
class FileDocument(Document):
    """A document of a file, and what the file says of its translation.

    name           among the documents of all files; "" for its id
    forced, terms  as in `Request`
    draft          texts that the translations of its segments probably have
    where          of each segment, such as FILE:LINE; () if unknown
    masked         the segments with the spans behind their placeholders; () for segments without any
    """

    name: str = ""
    forced: ForcedTexts = field(default_factory=ForcedTexts)
    terms: Terms = field(default_factory=dict)
    draft: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    masked: tuple[Masked, ...] = ()


@dataclass(frozen=True)
class Setup:
    """A translator, with what holds of all documents.

    mode, max_tokens    as in `Request`
    translation_memory  fixes the segments that it knows
    terms, languages    as in `Request`; the terms of a document override them
    term_report         the file for the table of repeated terms; None: nobody asks
    one_form            whether documents are translated again where they write such a term in several forms
    confidence          to judge the segments that are written; None: nobody asks
    min_confidence      files tell the confidence, and segments below this are marked, or with unsure="leave" keep their
                        source; None: files tell nothing
    Raises ValueError for a table of terms where segments do not match, or of several translations.
    """

    translator: Translator
    decoding: DecodingConfig
    mode: Mode = "document"
    max_tokens: int | None = None
    translation_memory: TranslationMemory | None = None
    terms: Terms = field(default_factory=dict)
    confidence: Confidence | None = None
    min_confidence: float | None = None
    unsure: Unsure = "mark"
    languages: tuple[str, str] = ("", "")
    term_report: str | None = None
    one_form: bool = False

    def __post_init__(self) -> None:
        if self.term_report is not None and (self.decoding.n_best > 1 or not self.decoding.match_segments):
            wanted = "wanted decoding.n_best=1 and decoding.match_segments=true"
            raise ValueError(f"terms=auto and term_report tell of one translation of each segment: {wanted}")

    def request(self, documents: Sequence[FileDocument]) -> Request:
        """The request for these documents. Reports on stderr what the translation memory knows. Raises ValueError as
        `Request`."""
        forced = [document.forced for document in documents]
        masked = [document.masked or document.source for document in documents]
        return Request(
            [document.source for document in documents], self.decoding,
            [document.name or document.id for document in documents], self.mode, self.max_tokens,
            forced=fill_forced(self.translation_memory, forced, masked),
            terms=[{**self.terms, **document.terms} for document in documents],
            drafts=[document.draft for document in documents], where=[document.where for document in documents],
            languages=self.languages,
        )  # fmt: skip

    def counted(self, request: Request, translations: list[Translation]) -> tuple[Request, list[Translation]]:
        """What `in_one_form` makes of a request and its translations, if anybody asks for a table of terms."""
        if self.term_report is None:
            return request, translations
        return in_one_form(self.translator, request, translations, self.term_report, self.one_form)

    def judged(self, request: Request, translations: Sequence[Translation], first: int = 0) -> list[Translation]:
        """Translations with what is to be expected of their segments, if anybody asks; first: the number of the first
        one in the request."""
        if self.confidence is None:
            return list(translations)
        part, limit = slice(first, first + len(translations)), self.min_confidence or 0.0
        found = self.confidence.judge(self.translator, request.documents[part], translations, request.forced[part])
        unsure = [[n for n, one in enumerate(t.judged) if one and one.expected < limit] for t in found]
        return [replace(one, unsure=tuple(places)) for one, places in zip(found, unsure, strict=True)]

    def written(self, request: Request, judged: Sequence[Translation], first: int = 0) -> list[Translation]:
        """Judged translations as files have them."""
        if self.min_confidence is None:
            return [replace(one, judged=()) for one in judged]
        if self.unsure == "mark":
            return list(judged)
        return [_left(source, one) for source, one in zip(request.documents[first:], judged, strict=False)]


def _left(source: Sequence[str], translation: Translation) -> Translation:
    """A translation whose unsure segments are those of the source."""
    best, *others = translation.hypotheses
    texts = [source[n] if n in translation.unsure else text for n, text in enumerate(best.segments)]
    return replace(translation, hypotheses=(replace(best, segments=tuple(texts)), *others))
