"""What the translation of files is set up with: documents with the wishes of their files, and what all share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scaleformer.decoding.config import DecodingConfig, Mode
from scaleformer.text.documents import Document
from scaleformer.text.terms import Terms
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.request import Request
from scaleformer.translation.translation_memory import Masked, TranslationMemory, fill_forced
from scaleformer.translation.translator import Translator


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
    terms               those of a document override them
    """

    translator: Translator
    decoding: DecodingConfig
    mode: Mode = "document"
    max_tokens: int | None = None
    translation_memory: TranslationMemory | None = None
    terms: Terms = field(default_factory=dict)

    def request(self, documents: Sequence[FileDocument]) -> Request:
        """The request for these documents. Reports on stderr what the translation memory knows. Raises ValueError as
        `Request`."""
        forced = [document.forced for document in documents]
        masked = [document.masked or document.source for document in documents]
        return Request(
            [document.source for document in documents],
            self.decoding,
            [document.name or document.id for document in documents],
            self.mode,
            self.max_tokens,
            forced=fill_forced(self.translation_memory, forced, masked),
            terms=[{**self.terms, **document.terms} for document in documents],
            drafts=[document.draft for document in documents],
            where=[document.where for document in documents],
        )
