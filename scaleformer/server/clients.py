"""What the interfaces of other servers share (`libretranslate`, `deepl`): the texts of a request are translated as one
document, in order, and a wish that the model cannot fulfil is refused."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anyio import to_thread
from babel import Locale, UnknownLocaleError
from fastapi import HTTPException, Request
from pydantic import BaseModel, ConfigDict

from scaleformer.server.models import Chosen, Settings, choose
from scaleformer.server.reading import Prose, Read
from scaleformer.server.requests import Options
from scaleformer.server.service import Service
from scaleformer.server.sources import Source, split_texts, with_spans


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


def language(code: str) -> dict[str, str]:
    """A code and its English name."""
    try:
        return {"code": code, "name": Locale.parse(code, sep="-").get_display_name("en") or code}
    except (UnknownLocaleError, ValueError):
        return {"code": code, "name": code}


async def choose_model(request: Request, source: str | None, target: str, texts: Sequence[str] | None = None) -> Chosen:
    """The model for a pair of languages, the source that of the texts where it is not named. Raises HTTPException where
    none translates the pair, or the language is not sure."""
    try:
        text = None if texts is None else " ".join(texts)
        return await to_thread.run_sync(choose, request.app.state.service.models, source, target, text)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None


def pairs_of(request: Request) -> dict[str, list[str]]:
    """The languages that the models read, "" for one that is not known, each with those that it is translated to."""
    found: dict[str, dict[str, None]] = {}
    for model in request.app.state.service.models:
        found.setdefault(model.reads, {}).update(dict.fromkeys(model.writes))
    return {reads: list(writes) for reads, writes in found.items()}


async def translate_texts(
    request: Request, texts: Sequence[str], options: Options, chosen: Chosen, format: str = "text", context: str = ""
) -> list[list[str]]:
    """For each text its translation, then the other hypotheses that differ. context: a text before them, not returned.
    Raises HTTPException."""
    service: Service = request.app.state.service
    given = [(f"text {number}", text) for number, text in enumerate([context, *texts])]
    found: list[tuple[Prose, Read]] = []

    async def read(settings: Settings, *how: Any) -> list[Source]:
        found.extend(await split_texts(given, format, options, settings, *how))
        segments = [segment for _, (segments, *_) in found for segment in segments]
        kept = [one for _, (_, some, _) in found for one in some]
        return [Source("texts", segments, with_spans(settings, sum(map(len, kept))), kept=kept)]

    opened = await service.open(request, options, read, chosen=chosen)
    [done] = await opened.wait(request)
    answers: list[list[str]] = [[] for _ in texts]
    for hypothesis in done.translation.hypotheses:
        (_, (before, *_)), *rest = found
        start = len(before)
        for (prose, (segments, *_)), answer in zip(rest, answers, strict=True):
            write = partial(prose.write, hypothesis.segments[start : start + len(segments)])
            content, _ = await service.aside.apart(write, prose.size)
            start += len(segments)
            if (text := content.decode()) not in answer:
                answer.append(text)
    kept(request).characters += sum(map(len, texts))
    return answers


def kept(request: Request) -> Kept:
    kept: Kept = request.app.state.kept
    return kept
