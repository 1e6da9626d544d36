"""The limits of a server: refused requests, waiting, and shutdown."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from scaleformer.server.app import make_app
from scaleformer.server.models import Model
from scaleformer.server.run import Server, open_socket, serve
from scaleformer.server.service import Limits, Service
from scaleformer.server.sources import Splitting
from scaleformer.translation.translator import Translator
from tests.runs import make_run
from tests.server.running import TEXTS, Running, documents, error_of, running


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("limits") / "run")


@pytest.fixture
def translator(run: Path) -> Translator:
    return Translator.load(run, "cpu")


class Held:
    """A translator whose batches wait until they are released; names: the documents of each."""

    def __init__(self, translator: Translator) -> None:
        self.go, self.here, self.names = threading.Event(), threading.Event(), list[list[str]]()
        self._translate = translator.translate_documents
        translator.translate_documents = self  # type: ignore[method-assign,assignment]

    def __call__(self, request, listener):
        self.names.append(list(request.names))
        self.here.set()
        assert self.go.wait(120)
        return self._translate(request, listener)


def until(condition) -> None:
    """Wait for another thread."""
    for _ in range(12_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def hang_up(server: Running, path: str = "/translate") -> socket.socket:
    """A request whose client can disconnect at any time."""
    body = json.dumps({"documents": [{"id": "gone", "source": ["a dog"]}]}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
    connection.sendall(head.encode() + body)
    return connection


def test_the_token(translator):
    with running(translator, "secret") as server:
        assert server.post(documents=documents()).status_code == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            for path in ("/translate", "/translate/file", "/translate/stream"):
                response = httpx.post(server.url + path, headers=headers, json={}, trust_env=False)
                assert response.status_code == 401
                assert error_of(response).startswith("missing or wrong token")
            assert httpx.get(f"{server.url}/metrics", headers=headers, trust_env=False).status_code == 401
        assert httpx.get(f"{server.url}/health", trust_env=False).json()["token"] is True
        assert httpx.get(server.url, trust_env=False).status_code == 200


def test_a_body_too_large(translator):
    with running(translator, body=2000) as server:
        for content in (b"x" * 50_000_000, iter([b"x" * 1_000_000] * 3)):
            response = server.client.post("/translate", content=content)
            assert response.status_code == 413
            assert error_of(response) == "more than 2,000 bytes: send it in parts"
        upload = {"file": ("a.txt", b"x" * 3000)}
        assert server.client.post("/translate/file", files=upload).status_code == 413
        assert server.post(documents=documents()).status_code == 200


def test_documents_too_long(translator):
    with running(translator, longest=40) as server:
        long = [["a cat sees a dog"] * 20]
        response = server.post(documents=documents(long))
        assert response.status_code == 422
        assert "more than 40: options.max_tokens=40 cuts it between segments" in error_of(response)
        answer = server.post(documents=documents(long), options={"max_tokens": 40}).json()
        assert answer["documents"][0]["target"] == translator.translate(long, max_tokens=40)[0]
        assert server.post(documents=documents(), options={"max_tokens": 5000}).status_code == 200
        response = server.post(documents=documents([["a cat sees a dog " * 20]]), options={"mode": "segment"})
        assert "split it" in error_of(response)


def test_what_does_not_fit_the_queue(translator):
    held = Held(translator)
    with running(translator, waiting=60) as server, ThreadPoolExecutor(4) as pool:
        assert error_of(server.post(documents=documents([["x" * 80]]))).startswith("82 characters, more than 60")
        first = pool.submit(server.post, documents=documents())
        assert held.here.wait(120)
        second = pool.submit(server.post, documents=documents())
        until(lambda: server.service.worker.waiting)
        third = server.post(documents=documents())
        assert third.status_code == 429
        assert int(third.headers["retry-after"]) >= 1
        assert error_of(third).startswith("the queue is full: try again in ")
        held.go.set()
        assert first.result().status_code == second.result().status_code == 200


def test_too_many_requests_at_once(translator):
    held = Held(translator)
    with running(translator, requests=2) as server, ThreadPoolExecutor(4) as pool:
        others = [pool.submit(server.post, documents=documents())]
        assert held.here.wait(120)
        others.append(pool.submit(server.post, documents=documents()))
        until(lambda: server.service.worker.waiting)
        response = server.post(documents=documents())
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        assert server.client.get("/health").status_code == 200
        held.go.set()
        assert [other.result().status_code for other in others] == [200, 200]


def test_requests_share_a_batch_where_settings_are_alike(translator):
    held = Held(translator)
    with running(translator) as server, ThreadPoolExecutor(8) as pool:

        def ask(name: str, options: dict) -> httpx.Response:
            return server.post(documents=[{"id": name, "source": ["a dog"]}], options=options)

        sent = [pool.submit(ask, "first", {})]
        assert held.here.wait(120)
        for name, options in (("a", {}), ("b", {"strategy": "beam"}), ("c", {}), ("d", {"strategy": "beam"})):
            waiting = server.service.worker.waiting
            sent.append(pool.submit(ask, name, options))
            until(lambda waiting=waiting: server.service.worker.waiting > waiting)
        held.go.set()
        assert [one.result().status_code for one in sent] == [200] * 5
    assert held.names == [["first"], ["a", "c"], ["b", "d"]]


@pytest.mark.parametrize("path", ["/translate", "/translate/stream"])
def test_a_client_that_goes_is_not_translated_for(translator, path):
    held = Held(translator)
    with running(translator) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.post, documents=documents())
        assert held.here.wait(120)
        connection = hang_up(server, path)
        until(lambda: server.service.worker.waiting)
        connection.close()
        until(lambda: not server.service.worker.waiting)
        held.go.set()
        assert first.result().status_code == 200
        assert server.post(documents=documents()).status_code == 200
    assert ["gone"] not in held.names


def test_a_client_that_goes_while_its_document_is_written(translator):
    expected = translator.translate(TEXTS)
    held = Held(translator)
    with running(translator) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.post, documents=documents([["x"]]))
        assert held.here.wait(120)
        connection = hang_up(server)
        until(lambda: server.service.worker.waiting)
        other = pool.submit(server.post, documents=documents())
        until(lambda: server.service.worker.waiting == 4)
        held.here.clear()
        held.go.set()
        first.result()
        assert held.here.wait(120)
        connection.close()
        assert [d["target"] for d in other.result().json()["documents"]] == expected
        total = server.service.metrics.registry.get_sample_value
        until(lambda: total("scaleformer_documents_total") + total("scaleformer_given_up_documents_total") == 5)


def test_what_takes_too_long_is_given_up(translator):
    held = Held(translator)
    with running(translator, seconds=0.5) as server:
        response = server.post(documents=documents())
        assert response.status_code == 504
        assert error_of(response) == "not finished in 0.5 s: send less at once"
        held.go.set()
        until(lambda: server.post(documents=documents()).status_code == 200)  # on a loaded machine not the first


def test_one_document_does_not_take_the_others_with_it(translator):
    held = Held(translator)
    plain = held._translate

    def fails(request, listener):
        if "bad" in request.names:
            raise ValueError("bad: cannot be translated")
        return plain(request, listener)

    held._translate = fails
    with running(translator) as server, ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(server.post, documents=documents())]
        assert held.here.wait(120)
        for name in ("bad", "good"):
            waiting = server.service.worker.waiting
            sent.append(pool.submit(server.post, documents=[{"id": name, "source": ["a dog"]}]))
            until(lambda waiting=waiting: server.service.worker.waiting > waiting)
        held.go.set()
        first, bad, good = (one.result() for one in sent)
    assert first.status_code == good.status_code == 200
    assert (bad.status_code, error_of(bad)) == (422, "bad: cannot be translated")
    assert ["bad", "good"] in held.names


def test_the_end_is_in_order(translator):
    held = Held(translator)
    server = Running(translator)
    with ThreadPoolExecutor(3) as pool:
        running_one = pool.submit(server.post, documents=documents())
        assert held.here.wait(120)
        waiting_one = pool.submit(server.post, documents=documents())
        until(lambda: server.service.worker.waiting)
        ended = pool.submit(server.stop)
        refused = waiting_one.result()
        assert refused.status_code == 503
        assert error_of(refused) == "the server is shutting down: try again when it is back"
        held.go.set()
        assert running_one.result().status_code == 200
        ended.result()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url, trust_env=False)


def test_the_command_ends_by_sigterm(run):
    command = [sys.executable, "-m", "scaleformer", "serve", f"checkpoint={run}", "port=0", "threads=1"]
    environment = {**os.environ, "SCALEFORMER_TOKEN": "abc"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert line.startswith(f"serving {run} at http://127.0.0.1:")
            url = line.split()[3]
            body = {"documents": documents()}
            found = [
                httpx.post(f"{url}/translate", json=body, headers=headers, trust_env=False, timeout=60).status_code
                for headers in ({}, {"Authorization": "Bearer abc"})
            ]
        except BaseException:
            process.kill()  # it would be waited for
            raise
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert found == [401, 200]
    assert (process.returncode, rest) == (0, "ended\n")


def test_the_announced_address_can_be_connected_to(translator, monkeypatch, capsys):
    heard = []

    def begin(self, sockets):
        heard.append(capsys.readouterr().err)
        socket.create_connection(sockets[0].getsockname(), timeout=60).close()
        self.service.worker.end()

    monkeypatch.setattr(Server, "run", begin)
    monkeypatch.setattr(logging.getLogger("scaleformer.translation"), "setLevel", lambda level: None)  # of all tests
    service = Service([Model(translator, translator.decoding, "run")], Limits(), Splitting("lines", None))
    with open_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        serve(make_app(service), service, listener, "run")
    assert heard == [f"serving run at http://127.0.0.1:{port} (stop with Ctrl-C)\n"]


def test_an_address_has_so_many_requests_in_a_minute(translator):
    with running(translator, per_minute=2) as server:
        assert [server.post(documents=documents()).status_code for _ in range(3)] == [200, 200, 429]
        response = server.post(documents=documents())
        assert 1 <= int(response.headers["Retry-After"]) <= 60
        assert error_of(response).startswith("more than 2 requests in a minute: try again in ")
        assert server.client.get("/health").status_code == 200


def test_pages_of_named_hosts_may_ask(translator):
    ask = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    with running(translator, token="abc", origins=["https://example.org"]) as server:
        del server.client.headers["Authorization"]
        response = server.client.options("/translate", headers=ask)
        assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (200, "https://example.org")
        other = server.client.options("/translate", headers={**ask, "Origin": "https://elsewhere.org"})
        assert "Access-Control-Allow-Origin" not in other.headers
