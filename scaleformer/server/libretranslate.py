"""The interface of LibreTranslate, so that programs made for it can use this server."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, File, Form, HTTPException, Request, Response, UploadFile
from pydantic import Field

from scaleformer.formats.recognition import FORMATS, TRANSLATED
from scaleformer.server.clients import ClientRequest, Kept, choose_model, kept, language, pairs_of, translate_texts
from scaleformer.server.models import MISSING, detect
from scaleformer.server.requests import Options, Text
from scaleformer.server.service import Service
from scaleformer.server.sources import clean_name, open_upload
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
    texts = [body.q] if isinstance(body.q, str) else body.q
    chosen = await choose_model(request, body.source, body.target, texts)
    options = Options()
    if wanted := body.alternatives and body.alternatives + 1:
        options = Options(n_best=wanted, strategy="beam", beam_size=max(chosen.model.decoding.beam_size, wanted))
    answers = await translate_texts(request, texts, options, chosen, body.format)
    found: dict[str, Any] = {"translatedText": [first for first, *_ in answers]}
    if body.alternatives:
        found["alternatives"] = [others for _, *others in answers]
    if chosen.detected:
        found["detectedLanguage"] = [chosen.detected] * len(texts)
    return found if isinstance(body.q, list) else {name: values[0] for name, values in found.items()}


@router.post("/detect")
async def detect_language(request: Request, body: DetectRequest) -> list[dict[str, Any]]:
    """The language of a text, as LibreTranslate says it."""
    try:
        return (await to_thread.run_sync(detect, body.q))[:3]
    except ImportError:
        raise HTTPException(501, MISSING) from None


@router.get("/languages")
async def languages(request: Request) -> list[dict[str, Any]]:
    """What the models translate, as LibreTranslate says it."""
    return [{**language(reads), "targets": writes} for reads, writes in pairs_of(request).items() if reads]


@router.get("/frontend/settings")
async def frontend_settings(request: Request) -> dict[str, Any]:
    """What a client of LibreTranslate adapts itself to."""
    service: Service = request.app.state.service
    first = service.models[0]
    keyed = request.app.state.token is not None
    return {
        "apiKeys": keyed,
        "keyRequired": keyed,
        "charLimit": service.limits.waiting,
        "frontendTimeout": 500,
        "filesTranslation": True,
        "supportedFilesFormat": sorted(ending for name in TRANSLATED for ending in FORMATS[name].endings),
        "suggestions": False,
        "language": {"source": language(first.reads), "target": language(next(iter(first.writes), ""))},
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
    name = clean_name(file.filename or "")
    options = Options.model_construct(target_language=target)
    unknown = source == "auto" and service.reads_several  # until the file is read
    chosen = None if unknown else await choose_model(request, source, target)
    read = partial(open_upload, await file.read(), name, options, service.limits.body)
    opened = await service.open(request, options, read, chosen=chosen)
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
