"""What the tests of `translate` share."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator
from tests.commands.calls import run_command
from tests.runs import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("translate") / "run")


@pytest.fixture
def translate(monkeypatch, capsys):
    """The command in this process: exit code, stdout, stderr."""
    return partial(run_command, monkeypatch, capsys, "translate")


@pytest.fixture
def translate_files(run, translate):
    """With the model and the language that files of prose need."""
    return partial(translate, f"checkpoint={run}", "source_language=en")


@pytest.fixture
def words(monkeypatch):
    """A model that writes words in capitals, and fixed segments as they are; the documents that it translated."""
    asked: list[list[str]] = []

    def documents(self, request, listener, begun=()):
        found = list(begun)
        for n in range(len(begun), len(request.documents)):
            asked.append(list(request.documents[n]))
            fixed = request.forced[n].fixed
            segments = tuple(fixed.get(i, text.upper()) for i, text in enumerate(request.documents[n]))
            found.append(Translation((DocumentHypothesis(segments, 0.0, 0.0, True),), len(segments), 1))
            listener.finished(found[-1])
        return found

    monkeypatch.setattr(Translator, "translate_documents", documents)
    return asked
