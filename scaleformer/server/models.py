"""The models of a server, and the choice among them by the languages of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from scaleformer.data.tokenizer_import import tag_names
from scaleformer.decoding.config import DecodingConfig, Mode
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.languages import base_language, check_code
from scaleformer.text.terms import is_expression
from scaleformer.translation.confidence import Confidence
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.request import Request
from scaleformer.translation.translator import Translator

SURE = 0.8  # of the probability that the languages of all models share, to take one of them for that of a text
SURELY = 99  # percent, from which on a text is of a language that no model reads
LONG = 100  # characters, up to which even so it counts as that of the only model
MOST_TERMS = 1000  # of a request or a document
MISSING = "detection needs py3langid: pip install 'scaleformer[documents]'"


class Model:
    """A model that is served.

    name        in /health and the metrics
    pair        the languages that it is chosen for, as in `en-es`; None for those that it tells itself
    reads       its source language; "" where nothing says it
    writes      its target languages with their tags; none where nothing says it
    confidence  what judges its segments; None where it is not calibrated, for the reason `uncalibrated`

    Raises ValueError in one line for a pair that the model does not translate.
    """

    def __init__(
        self, translator: Translator, decoding: DecodingConfig, name: str, pair: tuple[str, str] | None = None
    ) -> None:
        self.translator, self.decoding, self.name, self.pair = translator, decoding, name, pair
        self.reads: str = translator.segmentation.get("source_language") or ""
        self.writes: dict[str, str | None] = {}
        for tags in ([translator.tag], translator.source_tokenizer.tags):
            coded = {code: tag for tag in tags if (code := translator.target_language(tag))}
            self.writes = coded or self.writes
        if pair is not None:
            _, tag = _fitting([self], *pair)[0]
            self.reads, self.writes = pair[0], {pair[1]: tag}
        self.confidence, self.uncalibrated = None, ""
        try:
            self.confidence = Confidence.of(translator)
        except DataError as error:
            self.uncalibrated = str(error)

    def target_language(self, tag: str | None) -> str:
        """The language that it writes with a tag, "" where nothing says it."""
        return self.translator.target_language(tag) if self.pair is None else self.pair[1]

    @property
    def named(self) -> dict[str, str]:
        """The options that choose it among several; {} for one that is alone."""
        return {} if self.pair is None else dict(zip(("source_language", "target_language"), self.pair, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """What /health says of it."""
        model = self.translator
        return {
            "model": self.name,
            "sha256": model.sha256,
            "source": self.reads,
            "targets": list(self.writes),
            "tags": tag_names(model.source_tokenizer),
            "align": self.decoding.match_segments,
            "confidence": self.confidence is not None,
        }


@dataclass(frozen=True)
class Settings:
    """The settings that a batch shares; see `Request`. align, confidence: whether to align words and judge segments."""

    model: Model
    decoding: DecodingConfig
    mode: Mode = "document"
    max_tokens: int | None = None
    tag: str | None = None
    terms: tuple[tuple[str, str], ...] = ()
    align: bool = False
    confidence: bool = False

    def with_terms(self, terms: Mapping[str, str], where: str = "terms") -> Settings:
        """These settings with more terms, which win. Raises a ValueError that starts with `where` for too many and for
        regular expressions."""
        if len(terms) > MOST_TERMS:
            raise ValueError(f"{where}: {len(terms):,}, more than {MOST_TERMS:,}: send those of the text")
        if expression := next(filter(is_expression, terms), None):
            raise ValueError(f"{where}: {shown(expression)} is a regular expression, which a server does not take")
        return replace(self, terms=tuple({**dict(self.terms), **terms}.items())) if terms else self

    def request(
        self,
        documents: Sequence[Sequence[str]],
        names: Sequence[str] = (),
        drafts: Sequence[Sequence[str]] = (),
        forced: Sequence[ForcedTexts] = (),
    ) -> Request:
        """The request to the translator. Raises ValueError for settings that do not fit together."""
        how = self.mode, self.max_tokens, self.tag
        languages = self.model.translator.languages(self.tag)
        return Request(documents, self.decoding, names, *how, forced, dict(self.terms), drafts, languages=languages)


class Chosen(NamedTuple):
    """A model for a request, the tag for the language asked for, and the language that its text was taken to have."""

    model: Model
    tag: str | None = None
    detected: dict[str, Any] | None = None


def choose(models: Sequence[Model], source: str | None, target: str | None, text: str | None = None) -> Chosen:
    """The model for a pair of languages, as far as they are named; the source of a text is found if it is not. Raises
    ValueError in one line where no model translates the pair, where several do, and where the language of the text is
    not sure."""
    source = "" if source is None or source.lower() == "auto" else source
    found = _fitting(models, source, target or "")
    readers = list(dict.fromkeys(model.reads for model, _ in found))
    detected = None
    if not source and text is not None:
        detected = find_language(readers, text)
        found = [one for one in found if len(readers) == 1 or one[0].reads == detected["language"]]
    elif not source and len(readers) > 1:
        raise ValueError(f"the source language is missing: {_told(models)}")
    model, tag = found[0]
    if len(models) == 1 and not target:
        return Chosen(model, None, detected)
    if not target and len(found) > 1:
        raise ValueError(f"the target language is missing: {_told(models)}")
    return Chosen(model, tag, detected)


def _fitting(models: Sequence[Model], source: str, target: str) -> list[tuple[Model, str | None]]:
    """The models that translate a pair, "" for any language, with their tags; exactly this target before its kin."""
    found = []
    for model in models:
        if source and model.reads and base_language(source) != base_language(model.reads):
            continue
        for code, tag in (model.writes or {target: None}).items():
            if not target or base_language(code) == base_language(target):
                found.append((code.lower() != target.lower(), model, tag))
    if not found:
        pair = f"{source or 'auto'} to {target}"
        raise ValueError(f"{shown(pair)} is not supported: {_told(models)}")
    return [(model, tag) for _, model, tag in sorted(found, key=lambda one: one[0])]


def _told(models: Sequence[Model]) -> str:
    pairs = [f"{one.reads or '?'} to {', '.join(one.writes) or '?'}" for one in models]
    return f"{'this model translates' if len(models) == 1 else 'the models translate'} {', '.join(pairs)}"


def parse_pair(pair: str) -> tuple[str, str]:
    """The languages of `en-es` or `en-pt-BR`. Raises ValueError in one line."""
    source, _, target = pair.partition("-")
    for code in (source, target):
        try:
            check_code("", code)
        except ValueError:
            raise ValueError(f"models: {shown(pair)}: wanted the two languages, as in en-es or en-pt-BR") from None
    return base_language(source), target


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect(text: str) -> list[dict[str, Any]]:
    """The languages of a text, the likeliest first, with their confidence in percent. Raises ImportError without
    py3langid."""
    ranking = _identifier().rank(text)
    return [{"language": str(code), "confidence": round(100 * float(share), 1)} for code, share in ranking]


def find_language(known: Sequence[str], text: str) -> dict[str, Any]:
    """The language of a text among those that models read, as `detect` gives it. Raises ValueError in one line where
    it is surely another, or where it is not sure which."""
    try:
        ranking = detect(text)
    except ImportError:
        if len(known) > 1:
            raise ValueError(f"the source language is missing, and its {MISSING}") from None
        ranking = []
    named = {base_language(code): code for code in known if code}
    if not named:
        return ranking[0] if ranking else {}
    same = [{**one, "language": named[one["language"]]} for one in ranking if one["language"] in named]
    several, best = len(known) > 1, ranking[0] if ranking else None
    if best and best["language"] not in named and best["confidence"] > SURELY and (several or len(text) > LONG):
        reads = f"{'the models read' if several else 'this model reads'} {', '.join(known)}"
        raise ValueError(f"the text looks like {best['language']}, {reads}: name the source")
    if several and (not same or same[0]["confidence"] <= SURE * sum(one["confidence"] for one in same)):
        likely = " or ".join(f"{one['language']} ({one['confidence']:.0f}%)" for one in same[:2]) or ", ".join(known)
        raise ValueError(f"the text may be {likely}: name the source")
    return same[0] if same else {"language": known[0], "confidence": 0.0}
