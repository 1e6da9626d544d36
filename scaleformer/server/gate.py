"""Checks on every request before it is parsed: token, size, upload time and number of requests in progress."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scaleformer.server.metrics import Metrics
from scaleformer.server.service import Limits

OPEN = ("/", "/health", "/docs", "/openapi.json")  # without the token
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
        finally:
            self._present -= 1
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.seconds.labels(path).observe(time.monotonic() - started)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._token is not None and scope["path"] not in OPEN:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                error = "missing or wrong token: send Authorization: Bearer TOKEN"
                await _refusal(401, error, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
                return
        if self._present > self._limits.requests and scope["path"] not in OPEN:
            error = f"{self._limits.requests} requests are in progress: try again in 1 s"
            await _refusal(429, error, {"Retry-After": "1"})(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._read(receive), READING)
        except asyncio.TimeoutError:
            await _refusal(408, f"the request did not arrive within {READING:g} s")(scope, receive, send)
            return
        if body is None:
            return
        if len(body) > self._limits.body:
            await _refusal(413, f"more than {self._limits.body:,} bytes: send it in parts")(scope, receive, send)
            return
        given_out = False

        async def read() -> Message:
            nonlocal given_out
            if given_out:
                return await receive()
            given_out = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, read, send)

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


def _refusal(status: int, error: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": error}, status, {**(headers or {}), "Connection": "close"})
