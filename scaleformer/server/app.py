"""The application: its paths, requests, responses and one-line errors."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, Body, FastAPI, File, Form, HTTPException, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Discriminator, Json, Tag
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.cors import CORSMiddleware

from scaleformer import __version__
from scaleformer.server import deepl, libretranslate
from scaleformer.server.clients import Kept
from scaleformer.server.corrections import Correction
from scaleformer.server.gate import Gate
from scaleformer.server.libretranslate import LibreRequest, translate_libre
from scaleformer.server.models import choose
from scaleformer.server.requests import (
    ErrorAnswer,
    FileAnswer,
    Options,
    SourceDocument,
    Targets,
    TranslateAnswer,
    TranslateRequest,
    answer_of,
)
from scaleformer.server.service import Opened, Service, in_numbers, in_pharaoh
from scaleformer.server.sources import open_documents, open_upload
from scaleformer.server.worker import Done, Written
from scaleformer.system.schema import shown, unknown_setting
from scaleformer.translation.translations import Translation

log = logging.getLogger(__name__)
REPORT = "X-Scaleformer-Report"
TOLD = 3  # faults of a request
ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorAnswer, "description": "The token is missing or wrong"},
    413: {"model": ErrorAnswer, "description": "Larger than the server accepts"},
    422: {"model": ErrorAnswer, "description": "Input that cannot be translated, or options that do not fit together"},
    429: {"model": ErrorAnswer, "description": "The queue is full; Retry-After says when to try again"},
    503: {"model": ErrorAnswer, "description": "The server is shutting down"},
    504: {"model": ErrorAnswer, "description": "Not finished in time"},
}
# The page embeds its script and style, and connects to this server only.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
POLICY += "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#: A request with `q` is one of LibreTranslate.
AnyRequest = Annotated[
    Annotated[TranslateRequest, Tag("own")] | Annotated[LibreRequest, Tag("libre")],
    Discriminator(lambda body: "libre" if isinstance(body, dict) and "q" in body else "own"),
]
router = APIRouter()


def make_app(service: Service, token: str | None = None, origins: Sequence[str] = ()) -> FastAPI:
    """The application of a service. token: the one that requests need, None for no token; origins: of pages of other
    hosts that may ask."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.worker.end()

    app = FastAPI(
        title="Scaleformer", version=__version__, description="Translates documents.", lifespan=lifespan, redoc_url=None
    )
    app.state.service, app.state.token, app.state.kept = service, token, Kept()
    foreign = libretranslate.router, deepl.router
    app.include_router(router)
    for one in foreign:
        app.include_router(one, responses=ERRORS)
    app.add_exception_handler(StarletteHTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _fault)
    paths = {"/openapi.json", "/docs", *(route.path for one in (router, *foreign) for route in one.routes)}  # type: ignore[attr-defined]
    app.add_middleware(Gate, limits=service.limits, token=token, metrics=service.metrics, paths=paths)
    if origins:  # outside of the gate: a browser asks for leave without the token
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    return app


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _open(request: Request, body: TranslateRequest) -> Opened:
    read = partial(open_documents, body.documents, body.options)
    return await _service(request).open(request, body.options, read, [document.target for document in body.documents])


@router.post("/translate", response_model=TranslateAnswer, response_model_exclude_none=True, responses=ERRORS)
async def translate(request: Request, body: AnyRequest) -> TranslateAnswer | Response:
    """Translate documents; respond when all are finished. Those of LibreTranslate get its answer."""
    if isinstance(body, LibreRequest):
        return JSONResponse(await translate_libre(request, body))
    opened = await _open(request, body)
    documents = [await opened.answer(done) for done in await opened.wait(request)]
    return TranslateAnswer(documents=documents, timing=opened.timing())


@router.post("/translate/stream", response_class=StreamingResponse, responses=ERRORS)
async def translate_stream(request: Request, body: TranslateRequest) -> StreamingResponse:
    """Server-sent events: `source` with all segments, `segment` for each final one (with greedy search while the rest
    is being decoded), `document` as in `/translate`, `end` with the timing; `error` ends the stream.
    """
    opened = await _open(request, body)
    return _stream(opened, _events(opened))


@router.post("/translate/file", responses={**ERRORS, 200: {"content": {"application/octet-stream": {}}}})
async def translate_file(
    request: Request,
    file: Annotated[
        UploadFile, File(description="text, Markdown, HTML, office documents, EPUB, PO, XLIFF, SRT, WebVTT, JSON Lines")
    ],
    options: Annotated[Json[Options], Form(description="as JSON")] = "{}",  # type: ignore[assignment]
    targets: Annotated[
        Json[Targets | None],
        Form(description="as JSON: by document, translations of all segments to write in place of translating"),
    ] = "null",  # type: ignore[assignment]
    report: Annotated[
        Literal["header", "json", "stream"],
        Query(description="header: the file, its report as a header; json: both as JSON; stream: server-sent events"),
    ] = "header",
) -> Response:
    """Translate the prose of a file; everything else stays as it is."""
    chosen = Options.model_validate_json(options) if isinstance(options, str) else options
    given = targets.root if isinstance(targets, Targets) else None
    name = file.filename or ""
    if (asked := [name for name in ("align", "confidence") if getattr(chosen, name)]) and report != "stream":
        raise HTTPException(422, f"options.{asked[0]}: a file has no room for it: ask with report=stream")
    service = _service(request)
    read = partial(open_upload, await file.read(), name, chosen, service.limits.body)
    opened = await service.open(request, chosen, read, given)
    if report == "stream":
        return _stream(opened, _events(opened, name))
    found, content = await opened.file(name, [done.translation for done in await opened.wait(request)])
    if report == "json":
        return JSONResponse(answer_of(FileAnswer(report=found, content=content)))
    headers = {
        REPORT: json.dumps(answer_of(found)),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name)}",
    }
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.post("/corrections", responses=ERRORS)
async def correct(
    request: Request,
    corrections: Annotated[list[Correction], Body(embed=True, min_length=1)],
    tag: Annotated[str | None, Body()] = None,
    source_language: Annotated[str | None, Body()] = None,
    target_language: Annotated[str | None, Body()] = None,
) -> dict[str, int]:
    """Keep corrections for the next training and for later documents."""
    service = _service(request)
    if service.corrections is None:
        raise HTTPException(404, "corrections are not kept here: start the server with corrections=FILE.jsonl")
    try:
        chosen = choose(service.models, source_language, target_language)
        chosen.model.translator.of(tag := tag or chosen.tag).tag_tokens(tag)
        await to_thread.run_sync(service.corrections.add, corrections, chosen.model, tag)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    return {"kept": len(corrections)}


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Whether the server accepts requests, its version and its models; what holds of one model also by itself."""
    service = _service(request)
    if service.worker.ending:
        raise HTTPException(503, "the server is shutting down")
    models = [model.to_dict() for model in service.models]
    return {
        "status": "ok",
        "version": __version__,
        "device": str(service.models[0].translator.device),
        **(models[0] if len(models) == 1 else {}),
        "models": models,
        "corrections": service.corrections is not None,
        "token": request.app.state.token is not None,
        "waiting": service.worker.waiting,
    }


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    return Response(_service(request).metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


@router.get("/", include_in_schema=False)
async def page() -> HTMLResponse:
    """The web page."""
    content = files("scaleformer.server").joinpath("page.html").read_text(encoding="utf-8")
    return HTMLResponse(content, headers={"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"})


def _stream(opened: Opened, events: AsyncGenerator[str, None]) -> StreamingResponse:
    async def body() -> AsyncIterator[str]:
        async with aclosing(events):
            try:
                async for event in events:
                    yield event
            except HTTPException as error:
                yield _event("error", {"error": error.detail, "status": error.status_code})
            except Exception as error:
                log.error("a stream failed", exc_info=error)
                yield _event("error", {"error": _words(error), "status": 500})

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    # in case the client disconnects before the first event
    after = BackgroundTask(opened.cancel)
    return StreamingResponse(body(), media_type="text/event-stream", headers=headers, background=after)


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


async def _progress(opened: Opened) -> AsyncGenerator[str | Done, None]:
    """Encode segments as events; pass on finished documents."""
    sources = [
        {"id": source.name, "source": list(source.segments)} | ({"kept": source.kept} if any(source.kept) else {})
        for source in opened.sources
    ]
    yield _event("source", {"documents": sources, **opened.model.named})
    async with aclosing(opened.events()) as events:
        async for event in events:
            if isinstance(event, Written):
                for place, text in enumerate(event.texts, event.start):
                    yield _event("segment", {"document": event.document, "segment": place, "target": text})
            else:
                yield event or ": still here\n\n"


async def _events(opened: Opened, name: str | None = None) -> AsyncGenerator[str, None]:
    """The events of a request; name: that of its file, which comes at the end."""
    found: dict[int, Translation] = {}
    async with aclosing(_progress(opened)) as events:
        async for event in events:
            if isinstance(event, str):
                yield event
                continue
            found[event.document] = translation = event.translation
            if name is None:
                answer = answer_of(await opened.answer(event))
            else:
                answer = {"target": list(translation.segments), "cut": list(translation.cut)}
                answer |= {} if event.alignments is None else {"alignments": in_pharaoh(event)}
                remembered = opened.sources[event.document].remembered
                answer |= in_numbers(translation) | ({"remembered": remembered} if remembered else {})
            yield _event("document", {"document": event.document, **answer})
    if name is not None:
        report, content = await opened.file(name, [found[number] for number in range(len(opened.sources))])
        yield _event("file", answer_of(FileAnswer(report=report, content=content)))
    yield _event("end", {"timing": answer_of(opened.timing())})


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    text = str(error.detail)
    if error.status_code == 405:
        text = f"{request.method} {request.url.path}: wanted {(error.headers or {}).get('Allow', 'another method')}"
    elif error.status_code == 404 and text == "Not Found":
        text = f"{shown(request.url.path)}: no such path; /docs lists all paths"
    elif text == "There was an error parsing the body":
        error.status_code, text = 422, "the body cannot be read: wanted JSON in UTF-8, or a form"
    said = {"error": text} | ({"message": text} if request.url.path.startswith("/v2/") else {})  # as DeepL says it
    return JSONResponse(said, error.status_code, error.headers)  # type: ignore[arg-type]


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = sorted(error.errors(), key=lambda one: one["type"] == "missing")  # a wrong name says more than its lack
    if isinstance(error.body, bytes):
        said = "the body is not read as JSON: send it with the header Content-Type: application/json"
    else:
        said = "; ".join(map(_said, errors[:TOLD])) + f"; and {len(errors) - TOLD} more" * (len(errors) > TOLD)
    return JSONResponse({"error": " ".join(said.split())}, 422)


def _said(error: Mapping[str, Any]) -> str:
    """One fault of a request."""
    *outer, last = [str(part) for part in error["loc"] if part not in ("body", "own", "libre")] or ["the body"]
    where = ".".join([*outer, last])
    if error["type"] == "json_invalid" and last.isdecimal():
        return f"the body is not JSON: {error['ctx']['error']} at character {int(last) + 1}"
    if error["type"] == "missing":
        return f"{where}: missing; /docs says what is wanted"
    if error["type"] == "extra_forbidden":
        model = Options if "options" in outer else SourceDocument if "documents" in outer else TranslateRequest
        return unknown_setting(where, [".".join([*outer, name]) for name in model.model_fields], model.model_fields)
    given = error.get("input")
    value = "" if given is None or isinstance(given, (dict, list, BaseModel)) else f"={shown(given)}"
    return f"{where}{value}: {error['msg'].removeprefix('Value error, ')}"


async def _fault(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": _words(error)}, 500)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: internal server error, see the log"
