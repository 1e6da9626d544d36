"""A server for the tests of a module."""

from __future__ import annotations

import pytest

from scaleformer.translation.translator import Translator
from tests.runs import make_run
from tests.server.running import running


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("server") / "run"), "cpu")


@pytest.fixture(scope="module")
def server(translator: Translator):
    with running(translator) as found:
        yield found
