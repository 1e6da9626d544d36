"""What the interfaces of other servers share (`libretranslate`, `deepl`): the texts of a request are translated as one
document, in order, and a wish that the model cannot fulfil is refused."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from anyio import to_thread
from babel import Locale, UnknownLocaleError
from fastapi import HTTPException, Request
from pydantic import BaseModel, ConfigDict

from scaleformer.server.reading import Prose
from scaleformer.server.requests import Options
from scaleformer.server.service import Service
from scaleformer.server.sources import Source
from scaleformer.server.worker import Settings
from scaleformer.system.schema import shown
from scaleformer.text.languages import base_language
from scaleformer.translation.files.documents import check_language, choose_file_decoding
from scaleformer.translation.translator import Translator


class ClientRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")  # what other servers understand, and this one has no use for


@dataclass
class Kept:
    """What clients come back for, in memory: translated files and glossaries, by their keys; characters translated."""

    files: OrderedDict[str, tuple[str, bytes]] = field(default_factory=OrderedDict)
    glossaries: OrderedDict[str, tuple[dict[str, Any], dict[str, str]]] = field(default_factory=OrderedDict)
    characters: int = 0

    @staticmethod
    def add(place: OrderedDict[str, Any], value: Any, most: int) -> str:
        """Keep one more, at most so many; returns its key."""
        key = secrets.token_urlsafe(16)
        place[key] = value
        while len(place) > most:
            place.popitem(last=False)
        return key


def languages_of(translator: Translator) -> tuple[str, dict[str, str | None]]:
    """The language that a model reads, and those that it writes with their tags; "" and none where it does not say."""
    tags = [tag for tag in translator.source_tokenizer.tags if translator.target_language(tag)]
    own = {translator.target_language(): translator.tag} if translator.target_language() else {}
    return translator.segmentation.get("source_language") or "", {translator.target_language(t): t for t in tags} or own


def choose_tag(translator: Translator, source: str, target: str) -> str | None:
    """The tag for a pair of languages. Raises HTTPException where the model does not translate it."""
    reads, writes = languages_of(translator)
    wrong = source.lower() not in ("", "auto") and reads and base_language(source) != base_language(reads)
    found = [tag for code, tag in writes.items() if base_language(code) == base_language(target)]
    exact = [tag for code, tag in writes.items() if code.lower() == target.lower()]
    if wrong or (writes and not found):
        pair, wanted = f"{source or 'auto'} to {target}", f"{reads or '?'} to {', '.join(writes) or '?'}"
        raise HTTPException(400, f"{shown(pair)} is not supported: this model translates {wanted}")
    return (exact or found or [None])[0]


def language(code: str) -> dict[str, str]:
    """A code and its English name."""
    try:
        return {"code": code, "name": Locale.parse(code, sep="-").get_display_name("en") or code}
    except (UnknownLocaleError, ValueError):
        return {"code": code, "name": code}


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect(text: str) -> list[dict[str, Any]]:
    """The likeliest languages of a text, with their confidence in percent. Raises HTTPException without py3langid."""
    try:
        ranking = _identifier().rank(text)
    except ImportError:
        raise HTTPException(501, "detection needs py3langid: pip install 'scaleformer[documents]'") from None
    return [{"language": str(code), "confidence": round(100 * float(share), 1)} for code, share in ranking[:3]]


async def translate_texts(
    request: Request, texts: Sequence[str], options: Options, format: str = "text", context: str = ""
) -> list[list[str]]:
    """For each text its translation, then the other hypotheses that differ. context: a text before them, not returned.
    Raises HTTPException."""
    service: Service = request.app.state.service
    proses: list[Prose] = []
    sizes: list[int] = []

    async def read(settings: Settings, read: Any) -> list[Source]:
        grain, code = service.splitting.choose(service.translator, options)
        check_language(format, code, grain)
        target = service.translator.target_language(options.tag)
        for number, text in enumerate([context, *texts]):
            content = text.encode()
            proses.append(Prose(content, f"text {number}", format, code, grain, len(content), target))
        found = await read(proses)
        sizes.extend(len(segments) for segments, _ in found)
        spans = sum(len(one) for _, kept in found for one in kept if one)
        decoding = choose_file_decoding(service.translator, replace(settings.decoding, n_best=1), spans)
        alike = replace(settings, decoding=replace(decoding, n_best=settings.decoding.n_best))
        segments = [segment for segments, _ in found for segment in segments]
        return [Source("texts", segments, alike, kept=[one for _, kept in found for one in kept])]

    opened = await service.open_with(request, options, read)
    [done] = await opened.wait(request)
    answers: list[list[str]] = [[] for _ in texts]
    for hypothesis in done.translation.hypotheses:
        start = sizes[0]
        for prose, size, answer in zip(proses[1:], sizes[1:], answers, strict=True):
            write = partial(prose.write, hypothesis.segments[start : start + size])
            content, _ = await service.aside.apart(write, prose.size)
            start += size
            if (text := content.decode()) not in answer:
                answer.append(text)
    kept(request).characters += sum(map(len, texts))
    return answers


async def detected(request: Request, texts: Sequence[str]) -> dict[str, Any]:
    """The language that a request without one is taken to have: that of the model."""
    reads, _ = languages_of(request.app.state.service.translator)
    try:
        ranking = await to_thread.run_sync(detect, " ".join(texts))
    except HTTPException:
        return {"language": reads, "confidence": 0.0} if reads else {}
    best = ranking[0]
    if reads and best["confidence"] > 99 and best["language"] != base_language(reads) and len(" ".join(texts)) > 100:
        raise HTTPException(400, f"the text looks like {best['language']}, this model reads {reads}: name the source")
    same = [one for one in ranking if not reads or one["language"] == base_language(reads)]
    return same[0] if same else {"language": reads, "confidence": 0.0}


def kept(request: Request) -> Kept:
    kept: Kept = request.app.state.kept
    return kept
