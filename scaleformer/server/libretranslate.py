"""The interface of LibreTranslate, so that programs made for it can use this server."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, File, Form, HTTPException, Request, Response, UploadFile
from pydantic import Field

from scaleformer.formats.recognition import FORMATS, TRANSLATED
from scaleformer.server.clients import (
    ClientRequest,
    Kept,
    choose_tag,
    detect,
    detected,
    kept,
    language,
    languages_of,
    translate_texts,
)
from scaleformer.server.requests import Options, Text
from scaleformer.server.service import Service
from scaleformer.server.sources import clean_name
from scaleformer.system.schema import shown

FILES = 32  # kept, the latest
router = APIRouter()


class LibreRequest(ClientRequest):
    """A request to `/translate` as LibreTranslate has it."""

    q: Text | list[Text]
    source: str = "auto"
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=15)] = 0


class DetectRequest(ClientRequest):
    q: Text


async def translate_libre(request: Request, body: LibreRequest) -> dict[str, Any]:
    """The answer of `/translate` as LibreTranslate gives it. Raises HTTPException."""
    service: Service = request.app.state.service
    tag = choose_tag(service.translator, body.source, body.target)
    texts = [body.q] if isinstance(body.q, str) else body.q
    options = Options(tag=tag, n_best=body.alternatives + 1) if body.alternatives else Options(tag=tag)
    if body.alternatives:
        options.strategy, options.beam_size = "beam", max(service.decoding.beam_size, body.alternatives + 1)
    answers = await translate_texts(request, texts, options, body.format)
    found: dict[str, Any] = {"translatedText": [first for first, *_ in answers]}
    if body.alternatives:
        found["alternatives"] = [others for _, *others in answers]
    if body.source == "auto" and (known := await detected(request, texts)):
        found["detectedLanguage"] = [known] * len(texts)
    return found if isinstance(body.q, list) else {name: values[0] for name, values in found.items()}


@router.post("/detect")
async def detect_language(request: Request, body: DetectRequest) -> list[dict[str, Any]]:
    """The language of a text, as LibreTranslate says it."""
    return await to_thread.run_sync(detect, body.q)


@router.get("/languages")
async def languages(request: Request) -> list[dict[str, Any]]:
    """What the model translates, as LibreTranslate says it."""
    reads, writes = languages_of(request.app.state.service.translator)
    return [{**language(reads), "targets": list(writes)}] if reads else []


@router.get("/frontend/settings")
async def frontend_settings(request: Request) -> dict[str, Any]:
    """What a client of LibreTranslate adapts itself to."""
    service: Service = request.app.state.service
    reads, writes = languages_of(service.translator)
    keyed = request.app.state.token is not None
    return {
        "apiKeys": keyed,
        "keyRequired": keyed,
        "charLimit": service.limits.waiting,
        "frontendTimeout": 500,
        "filesTranslation": True,
        "supportedFilesFormat": sorted(ending for name in TRANSLATED for ending in FORMATS[name].endings),
        "suggestions": False,
        "language": {"source": language(reads), "target": language(next(iter(writes), ""))},
    }


@router.post("/translate_file")
async def translate_file_to_fetch(
    request: Request,
    file: Annotated[UploadFile, File()],
    target: Annotated[str, Form()],
    source: Annotated[str, Form()] = "auto",
) -> dict[str, str]:
    """Translate a file, as LibreTranslate does: the answer says where it can be fetched."""
    service: Service = request.app.state.service
    options = Options(tag=choose_tag(service.translator, source, target))
    name = clean_name(file.filename or "")
    opened = await service.open_file(request, await file.read(), name, options)
    report, content = await opened.file(name, [done.translation for done in await opened.wait(request)])
    key = Kept.add(kept(request).files, (report.name, content), FILES)
    return {"translatedFileUrl": f"{request.base_url}download_file/{key}/{quote(report.name)}"}


@router.get("/download_file/{key}/{name}")
async def download_file(request: Request, key: str, name: str) -> Response:
    """A translated file, as long as it is among the latest."""
    if (found := kept(request).files.get(key)) is None:
        raise HTTPException(404, f"{shown(name)}: no longer kept: translate it again")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(found[0])}"}
    return Response(found[1], media_type="application/octet-stream", headers=headers)
