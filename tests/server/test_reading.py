"""Reading of prose: in a process that can be ended, beside small requests, within limits of time and memory."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from fastapi import HTTPException

from scaleformer.server import aside as module
from scaleformer.server.aside import SMALL
from scaleformer.server.service import Service
from scaleformer.translation.translator import Translator
from tests.server.running import documents, markdown, running
from tests.server.test_limits import until

LARGE = SMALL + 1


def test_the_process_starts_without_torch() -> None:
    code = (
        "import sys, scaleformer.server.reading; from scaleformer.formats.recognition import FORMATS, load; "
        "[load(each.prose) for each in FORMATS.values() if each.prose]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_process_reads_and_writes_the_same(translator: Translator, tmp_path: Path, monkeypatch) -> None:
    upload = {"files": {"file": ("page.md", markdown(tmp_path).read_bytes())}}
    text = {"documents": [{"text": "a dog\n\nit runs\n"}]}
    with running(translator) as server:
        here = [server.client.post("/translate/file", **upload).content, server.post(**text).json()["documents"]]
        monkeypatch.setattr(module, "SMALL", 0)
        there = [server.client.post("/translate/file", **upload).content, server.post(**text).json()["documents"]]
        broken = server.client.post("/translate/file", files={"file": ("a.md", b"\xff")})
    assert there == here
    assert (broken.status_code, broken.json()) == (422, {"error": "a.md:1: not UTF-8: convert it to UTF-8"})


def test_what_takes_too_long_or_too_much_memory_is_refused(translator: Translator, monkeypatch) -> None:
    with running(translator) as server:
        service: Service = server.service

        async def calls() -> list[str]:
            found = []
            for seconds, call in ((60.0, partial(bytes, 16 << 30)), (3.0, partial(time.sleep, 100)), (60.0, int)):
                monkeypatch.setattr(module, "READING", seconds)
                try:
                    found.append(str(await service.aside.apart(call, LARGE)))
                except HTTPException as error:
                    found.append(f"{error.status_code} {error.detail}")
            return found

        assert asyncio.run(calls()) == [
            "413 takes more than 2 GiB of memory to read: split it",
            "504 not read within 3 s: send less at once",
            "0",
        ]


def test_small_requests_pass_a_large_one_whose_client_goes(translator: Translator) -> None:
    with running(translator) as server:
        large = server.service.aside._large
        body = json.dumps({"documents": [{"text": "a dog. " * 500_000}]}).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        connections = []
        for _ in range(3):  # one waits for the two others
            connections.append(socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))))
            connections[-1].sendall(head.encode() + b"\r\n\r\n" + body)
        until(lambda: large.borrowed_tokens == 2 and large.statistics().tasks_waiting == 1)
        assert server.post(documents=documents()).status_code == 200
        assert server.post(documents=[{"text": "a dog"}]).status_code == 200
        assert large.borrowed_tokens == 2
        for connection in connections:
            connection.close()
        until(lambda: large.borrowed_tokens == 0)
        assert server.client.get("/health").json()["waiting"] == 0
