"""A server in a thread of this process, and helpers for requests and for its page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from scaleformer.server.app import make_app
from scaleformer.server.corrections import Corrections
from scaleformer.server.models import Model
from scaleformer.server.run import Server, open_socket
from scaleformer.server.service import Limits, Service
from scaleformer.server.sources import Splitting
from scaleformer.translation.translator import Translator

if TYPE_CHECKING:
    from playwright import sync_api

TEXT = "the cat sees\nit runs\n<b>a dog</b>\n"
TEXTS = [["the cat sees", "it runs"], ["a dog"], ["a house", "a tree", "a cat"]]


class Running:
    """A server that runs until the block ends."""

    def __init__(
        self,
        translator: Translator | Sequence[Model],
        token: str | None = None,
        origins: Sequence[str] = (),
        corrections: Corrections | None = None,
        **limits: Any,
    ) -> None:
        if isinstance(translator, Translator):
            translator = [Model(translator, translator.decoding, "run")]
        self.service = Service(translator, Limits(**limits), Splitting("auto", None), corrections)
        listener = open_socket("127.0.0.1", 0)
        listener.listen()  # the first request may come before the thread has begun
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.server = Server(make_app(self.service, token, origins), self.service)
        self._thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self._thread.start()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=300, trust_env=False)

    def post(self, path: str = "/translate", **body: Any) -> httpx.Response:
        """The response to a JSON body."""
        return self.client.post(path, json=body)

    def events(self, path: str, **request: Any) -> list[tuple[str, dict[str, Any]]]:
        """All server-sent events of a request."""
        found = []
        with self.client.stream("POST", path, **request) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    found.append((name, json.loads(line.removeprefix("data: "))))
        return found

    def stop(self) -> None:
        """Stop like SIGTERM."""
        self.server.should_exit = True
        self._thread.join(120)
        assert not self._thread.is_alive()


@contextmanager
def running(translator: Translator | Sequence[Model], token: str | None = None, **limits: Any) -> Iterator[Running]:
    """A server for a block."""
    server = Running(translator, token, **limits)
    try:
        yield server
    finally:
        server.client.close()
        server.stop()


def documents(texts: list[list[str]] = TEXTS) -> list[dict[str, Any]]:
    """Documents in the form of a request."""
    return [{"id": f"d{number}", "source": source} for number, source in enumerate(texts)]


def error_of(response: httpx.Response) -> str:
    """The one-line error, which must be the whole response."""
    content = response.json()
    assert set(content) == {"error"}
    assert "\n" not in content["error"]
    return str(content["error"])


def markdown(folder: Path) -> Path:
    """A file with more than prose."""
    path = folder / "page.md"
    path.write_text("# the cat\n\nit *runs* by `x()`\n\n- a dog\n- a house\n", encoding="utf-8")
    return path


def translated(page: sync_api.Page) -> list[str]:
    """The target segments, once all have arrived."""
    page.get_by_role("link", name="Download").wait_for()
    return page.locator("button.target").all_inner_texts()
