"""The page of a server in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright import sync_api

from scaleformer.translation.translator import Translator
from tests.runs import make_run

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    decoding = {"strategy": "greedy", "max_length_ratio": 1.0, "max_length_offset": 4}
    return Translator.load(make_run(tmp_path_factory.mktemp("page") / "run", {"decoding": decoding}), "cpu")


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    # A browser is no package of Python, so that no `pip install` brings one. `.ci/run` installs it, and says so where
    # it cannot; machines where that needs an administrator run all other tests without.
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server) -> Iterator[sync_api.Page]:
    """The page; its scripts must not fail or fetch anything from other hosts."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    faults, others = [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
    page.on("request", lambda request: others.append(request.url) if server.url not in request.url else None)
    page.goto(server.url)
    yield page
    page.close()
    assert not faults
    assert not [url for url in others if not url.startswith(("data:", "blob:"))]
