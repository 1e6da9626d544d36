"""Checks on every request before it is parsed: token, size, upload time and number of requests in progress."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections import deque
from collections.abc import Collection
from math import ceil
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scaleformer.server.metrics import Metrics
from scaleformer.server.service import Limits

OPEN = ("/", "/health", "/docs", "/openapi.json", "/languages", "/frontend/settings")  # without the token
SCHEMES = (b"Bearer ", b"DeepL-Auth-Key ")  # before the token
KEYED = ("/translate", "/detect", "/translate_file")  # may have it in their body, as `api_key`, for LibreTranslate
NO_TOKEN = 401, "missing or wrong token: send Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
_KEY_PART = re.compile(rb'name="api_key"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n')
READING = 60.0  # seconds for the body of a request
DRAINED = 64 << 20  # bytes read of a body that is too large, so that its client receives the error


class Gate:
    """An application behind limits. A body is read whole before the application sees it.

    token  that requests need, None for no token
    paths  of the application, as labels of the metrics
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, token: str | None, metrics: Metrics, paths: Collection[str]
    ) -> None:
        self._app, self._limits, self._metrics, self._paths = app, limits, metrics, paths
        self._token = token.encode() if token is not None else None
        self._present = 0
        self._asked: dict[str, deque[float]] = {}  # by address, when within the last minute
        self._forget = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # whose body uvicorn leaves out
            scope = {**scope, "method": "GET"}
        path = scope["path"] if scope["path"] in self._paths else "other"
        started, status = time.monotonic(), 499  # the client disconnected

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._present += 1
        try:
            await self._pass(scope, receive, counted)
        except HTTPException as error:
            headers = {**(error.headers or {}), "Connection": "close"}
            await JSONResponse({"error": error.detail}, error.status_code, headers)(scope, receive, counted)
        finally:
            self._present -= 1
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.seconds.labels(path).observe(time.monotonic() - started)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        keyless = False
        # the name of a file to fetch is a secret of its own
        if self._token is not None and scope["path"] not in OPEN and not scope["path"].startswith("/download_file/"):
            given = dict(scope["headers"]).get(b"authorization", b"")
            keyless = not any(hmac.compare_digest(given, kind + self._token) for kind in SCHEMES)
        if self._limits.per_minute and scope["path"] not in OPEN and (seconds := self._wait_of(scope)):
            error = f"more than {self._limits.per_minute} requests in a minute: try again in {seconds} s"
            raise HTTPException(429, error, {"Retry-After": str(seconds)})
        if self._present > self._limits.requests and scope["path"] not in OPEN:
            error = f"{self._limits.requests} requests are in progress: try again in 1 s"
            raise HTTPException(429, error, {"Retry-After": "1"})
        try:
            body = await asyncio.wait_for(self._read(receive), READING)
        except asyncio.TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {READING:g} s") from None
        if body is None:
            return
        if len(body) > self._limits.body:
            raise HTTPException(413, f"more than {self._limits.body:,} bytes: send it in parts")
        if (form := form_as_json(scope, body)) is not None:
            if scope["method"] == "GET":  # DeepL's client asks so
                scope = {**scope, "query_string": bytes(body)}
            body = bytearray(form)
            others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
            scope = {**scope, "headers": [*others, (b"content-type", b"application/json")]}
        # not before the body has come: a connection that closes while it sends may lose the answer
        if keyless and (scope["path"] not in KEYED or not hmac.compare_digest(_key(body), self._token or b"")):
            raise HTTPException(*NO_TOKEN)
        given_out = False

        async def read() -> Message:
            nonlocal given_out
            if given_out:
                return await receive()
            given_out = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, read, send)

    def _wait_of(self, scope: Scope) -> int:
        """How many seconds an address has to wait; 0 if it need not, and then this request counts."""
        now, address = time.monotonic(), (scope.get("client") or ("",))[0]
        if now >= self._forget:  # addresses that have not asked for a minute
            self._asked = {one: asked for one, asked in self._asked.items() if asked[-1] > now - 60}
            self._forget = now + 60
        asked = self._asked.setdefault(address, deque())
        while asked and asked[0] <= now - 60:
            asked.popleft()
        if len(asked) >= self._limits.per_minute:
            return ceil(asked[0] + 60 - now)
        asked.append(now)
        return 0

    async def _read(self, receive: Receive) -> bytearray | None:
        """The body, or more bytes than allowed; None if the client disconnected."""
        body, size, more = bytearray(), 0, True
        while more and size <= max(DRAINED, self._limits.body):
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            body += part[: max(0, self._limits.body + 1 - len(body))]
            more = message.get("more_body", False)
        return body


def form_as_json(scope: Scope, body: bytearray) -> bytes | None:
    """The body of a form as JSON, None if it is another. Fields of the same name become a list, as does `text`."""
    if not dict(scope["headers"]).get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded"):
        return None
    fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    return json.dumps({k: v if len(v) > 1 or k == "text" else v[0] for k, v in fields.items()}).encode()


def _key(body: bytearray) -> bytes:
    """The `api_key` of a body, JSON or parts of a form."""
    if found := _KEY_PART.search(body):
        return found[1]
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return b""
    return str(read.get("api_key", "")).encode() if isinstance(read, dict) else b""
