"""The server process: its socket, signals and shutdown."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from scaleformer.server.service import Service


class Server(uvicorn.Server):
    """uvicorn, whose shutdown rejects new and waiting requests and finishes those that have started."""

    def __init__(self, app: FastAPI, service: Service) -> None:
        self.service = service
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(service.limits.seconds) + 5,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.worker.end()
        await super().shutdown(sockets)


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises ValueError in one line."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ValueError(f"host={host} port={port}: {error.strerror or error}: choose another port or host") from None
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def serve(app: FastAPI, service: Service, listener: socket.socket, name: str) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    # each response reports what was cut or left out of its documents
    logging.getLogger("scaleformer.translation").setLevel(logging.ERROR)
    host, port = listener.getsockname()[:2]
    server = Server(app, service)
    listener.listen(2048)  # who reads the line below may connect at once: uvicorn accepts a moment later
    where = f"[{host}]" if ":" in host else host
    print(f"serving {name} at http://{where}:{port} (stop with Ctrl-C)", file=sys.stderr, flush=True)
    try:
        server.run([listener])
    except (KeyboardInterrupt, SystemExit):  # uvicorn raises the signal again after the shutdown
        if not server.should_exit:
            raise
    service.worker.join()
    print("ended", file=sys.stderr)
