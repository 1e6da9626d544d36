"""The schema of requests and responses, from which the OpenAPI page is generated."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict, fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, RootModel, model_validator

from scaleformer.decoding.config import Cache, DecodingConfig, Draft, Mode, Strategy
from scaleformer.server.models import Model, Settings
from scaleformer.system.schema import from_mapping
from scaleformer.translation.files.documents import Split


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"lone surrogate at character {error.start}: not valid Unicode") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
_DECODING = {field.name for field in fields(DecodingConfig)}


class Options(BaseModel):
    """How to translate. Defaults come from the command that started the server; `scaleformer translate --help`
    explains each option."""

    model_config = ConfigDict(extra="forbid", strict=True)

    strategy: Strategy | None = None
    beam_size: Annotated[int, Field(ge=1, le=16)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    n_best: Annotated[int, Field(ge=1, le=16)] | None = None
    max_length_ratio: Annotated[float, Field(ge=0, le=4)] | None = None
    max_length_offset: Annotated[int, Field(ge=1, le=200)] | None = None
    match_segments: bool | None = None
    merge_segments: bool | None = None
    min_length_ratio: Annotated[float, Field(ge=0, le=4)] | None = None
    loop_ngram_size: Annotated[int, Field(ge=0, le=100)] | None = None
    temperature: Annotated[float, Field(ge=1e-6, le=100)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    draft: Draft | None = None
    cache: Cache | None = None
    mode: Mode = "document"
    max_tokens: Annotated[int, Field(ge=3, le=1_000_000)] | None = None
    tag: Annotated[Text, Field(max_length=100)] | None = None
    terms: dict[Text, Text] | None = None
    split: Split | None = None
    source_language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] | None = None
    target_language: Annotated[str, Field(pattern="^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")] | None = None
    align: bool = False
    confidence: bool = False

    def settings(self, model: Model, tag: str | None) -> Settings:
        """The settings of a model, overridden by these; tag: that of the target language. Raises ValueError if they do
        not fit together."""
        given = {name: value for name, value in self.model_dump(exclude_none=True).items() if name in _DECODING}
        chosen = from_mapping(DecodingConfig, {**asdict(model.decoding), **given}, "decoding")
        chosen.refuse_unread(given)
        if self.align and not chosen.match_segments:
            raise ValueError("align: is of segments of the source: set match_segments=true")
        if self.confidence and model.uncalibrated:
            raise ValueError(f"options.confidence: {model.uncalibrated}")
        how = self.mode, self.max_tokens, self.tag or tag, (), self.align, self.confidence
        settings = Settings(model, chosen, *how).with_terms(self.terms or {})
        settings.request([()])  # raises where they do not fit together
        return settings


class Targets(RootModel[list[list[Text]]]):
    """By document, translations of all its segments, to be written in place of translating it."""


class SourceDocument(BaseModel):
    """A document: its segments, or a text that is split like a file. target: translations of the segments of the text,
    to be put into it in place of translating them. draft: texts that its translation probably has, by the places of its
    segments, such as its translation before it was edited; they do not change the result. fixed: translations of
    segments, by number, that stay as they are and that later segments have as their context; begin: beginnings. known:
    sources and translations of other texts of the document. terms: of this document, which override those of the
    options."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Annotated[Text, Field(max_length=200)] | None = None
    source: list[Text] | None = None
    text: Text | None = None
    target: list[Text] | None = None
    draft: list[Text] | None = None
    fixed: dict[str, Text] = {}
    begin: dict[str, Text] = {}
    known: list[list[Text]] = []
    terms: dict[Text, Text] = {}

    @model_validator(mode="after")
    def _one_of_both(self) -> SourceDocument:
        if (self.source is None) == (self.text is None):
            raise ValueError("wanted source (a list of segments) or text, one of the two")
        if self.target is not None and self.text is None:
            raise ValueError("target: goes with text")
        return self


class TranslateRequest(BaseModel):
    """Documents and how to translate them."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"documents": [{"id": "a", "source": ["A segment.", "Another."]}]}]},
    )

    documents: list[SourceDocument] = Field(min_length=1)
    options: Options = Field(default_factory=Options)


class Alternative(BaseModel):
    """One hypothesis."""

    target: list[str]
    score: float
    log_probability: float
    finished: bool


class TranslatedDocument(BaseModel):
    """A translation. finished: False if a length limit cut it; cut: the segments (from 0) in which it did; long:
    segments longer than any in training, parts of which may stay untranslated; empty: segments with text but an empty
    translation; shared: segments merged into the translation of the one before; alignments: one per segment, with
    `align`; changed: with a draft, the segments that differ from it; confidence, reasons: with `confidence`, the chrF++
    to be expected of each segment, None where the model wrote nothing, and why it is low; remembered: segments that
    were corrected before. For a text also its segments and the translated text."""

    id: str
    target: list[str]
    finished: bool
    score: float
    log_probability: float
    source_tokens: int
    cut: list[int] = []
    long: list[int] = []
    empty: list[int] = []
    shared: list[int] = []
    remembered: list[int] = []
    changed: list[int] | None = None
    n_best: list[Alternative] | None = None
    alignments: list[str] | None = None
    confidence: list[float | None] | None = None
    reasons: list[list[str]] | None = None
    source: list[str] | None = None
    text: str | None = None
    notes: dict[str, int] | None = None


class Timing(BaseModel):
    """Seconds before the first document was started, and from then on."""

    waiting: float
    translating: float


class TranslateAnswer(BaseModel):
    """The documents in the order of the request."""

    documents: list[TranslatedDocument]
    timing: Timing


class FileReport(BaseModel):
    """Report on a translated file; notes: what could not be translated or placed, by reason."""

    name: str
    documents: int
    segments: int
    finished: bool
    cut: int
    long: int
    empty: int
    notes: dict[str, int]
    timing: Timing


class FileAnswer(BaseModel):
    """A translated file, its content in base64."""

    report: FileReport
    content: Annotated[bytes, PlainSerializer(lambda content: b64encode(content).decode("ascii"), return_type=str)]


class ErrorAnswer(BaseModel):
    """The error in one line."""

    error: str


def answer_of(model: BaseModel) -> dict[str, Any]:
    """For JSON, without the fields that are None."""
    return model.model_dump(exclude_none=True)
