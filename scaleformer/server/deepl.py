"""The interface of DeepL (`/v2`), so that programs made for it can use this server."""

from __future__ import annotations

import csv
from datetime import datetime, timezone
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import Field

from scaleformer.server.clients import ClientRequest, Kept, choose_model, kept, language, pairs_of, translate_texts
from scaleformer.server.models import MOST_TERMS
from scaleformer.server.requests import Options, Text
from scaleformer.system.schema import shown

GLOSSARIES = 1000  # kept, the latest
router = APIRouter(prefix="/v2")


class DeepLRequest(ClientRequest):
    """A request to `/v2/translate`."""

    text: Annotated[list[Text], Field(min_length=1)]
    target_lang: str
    source_lang: str | None = None
    context: Text = ""
    tag_handling: Literal["html", "xml"] | None = None
    split_sentences: str = "1"
    formality: str = "default"
    glossary_id: str | None = None


class Glossary(ClientRequest):
    name: str
    source_lang: str
    target_lang: str
    entries: Text
    entries_format: Literal["tsv", "csv"] = "tsv"


@router.post("/translate")
async def translate_deepl(request: Request, body: DeepLRequest) -> dict[str, Any]:
    """Translate texts as DeepL's clients ask for it."""
    if body.formality in ("more", "less"):
        raise HTTPException(400, f"formality={body.formality}: this model has one only: leave it out, or prefer_...")
    chosen = await choose_model(request, body.source_lang, body.target_lang, body.text)
    options = Options()
    if body.split_sentences == "0":
        options.split = "paragraph"
    if body.glossary_id is not None:
        options.terms = _glossary(request, body.glossary_id)[1]
    source = body.source_lang or (chosen.detected or {}).get("language", "")
    format = "html" if body.tag_handling else "text"
    answers = await translate_texts(request, body.text, options, chosen, format, body.context)
    found = [
        {"detected_source_language": source.upper(), "text": text, "billed_characters": len(given)}
        for given, (text, *_) in zip(body.text, answers, strict=True)
    ]
    return {"translations": found}


@router.get("/usage")
async def usage(request: Request) -> dict[str, int]:
    """Characters translated since the start; there is no limit."""
    return {"character_count": kept(request).characters, "character_limit": 10**12}


@router.get("/languages")
async def languages_deepl(request: Request, type: Literal["source", "target"] = "source") -> list[dict[str, Any]]:
    """What the models read or write, as DeepL says it."""
    pairs = pairs_of(request)
    codes = filter(None, pairs) if type == "source" else dict.fromkeys(chain(*pairs.values()))
    more = {} if type == "source" else {"supports_formality": False}
    return [{"language": code.upper(), "name": language(code)["name"], **more} for code in codes]


@router.post("/glossaries", status_code=201)
async def add_glossary(request: Request, body: Glossary) -> dict[str, Any]:
    """Keep terms until the server stops."""
    lines = [line for line in body.entries.splitlines() if line.strip()]
    rows = list(csv.reader(lines)) if body.entries_format == "csv" else [line.split("\t") for line in lines]
    if wrong := [number for number, row in enumerate(rows, 1) if len(row) != 2 or not all(map(str.strip, row))]:
        raise HTTPException(400, f"entries: line {wrong[0]}: wanted a source and a target, in {body.entries_format}")
    if len(rows) > MOST_TERMS:
        raise HTTPException(400, f"entries: {len(rows):,}, more than {MOST_TERMS:,}")
    made: dict[str, Any] = {"name": body.name, "ready": True, "source_lang": body.source_lang.lower()}
    made |= {"target_lang": body.target_lang.lower(), "creation_time": datetime.now(timezone.utc).isoformat()}
    made |= {"entry_count": len(rows)}
    made["glossary_id"] = Kept.add(kept(request).glossaries, (made, dict(rows)), GLOSSARIES)  # type: ignore[arg-type]
    return made


@router.get("/glossaries")
async def glossaries(request: Request) -> dict[str, Any]:
    """All that are kept."""
    return {"glossaries": [made for made, _ in kept(request).glossaries.values()]}


@router.get("/glossaries/{key}")
async def glossary(request: Request, key: str) -> dict[str, Any]:
    """One of them."""
    return _glossary(request, key)[0]


@router.delete("/glossaries/{key}", status_code=204)
async def forget_glossary(request: Request, key: str) -> None:
    """Forget one."""
    _glossary(request, key)
    del kept(request).glossaries[key]


def _glossary(request: Request, key: str) -> tuple[dict[str, Any], dict[str, str]]:
    found = kept(request).glossaries.get(key)
    if found is None:
        raise HTTPException(404, f"glossary {shown(key)}: not known, for a server keeps them until it stops")
    return found
