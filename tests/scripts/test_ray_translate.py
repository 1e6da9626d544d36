"""What an actor of Ray does with its rows, and what is refused; Ray itself is not needed here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scaleformer import Translator
from scripts import ray_translate
from tests.commands.calls import refusal
from tests.runs import make_run

DOCUMENTS = [["ab cd .", "ef ."], ["gh ij ."], ["", "kl ."]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("ray") / "run")


def test_a_worker_translates_rows_as_a_translator_does(run: Path) -> None:
    lines = [json.dumps({"id": name, "source": source}) for name, source in zip("abc", DOCUMENTS, strict=True)]
    rows = ray_translate.Worker(str(run), "cpu")({"text": np.array(lines, dtype=object)})
    found = [json.loads(line) for line in rows["text"]]
    translator = Translator.load(run, "cpu")
    expected = translator.translate_documents(translator.request(DOCUMENTS))
    assert [document["target"] for document in found] == [list(translation.segments) for translation in expected]
    assert [document["finished"] for document in found] == [translation.finished for translation in expected]
    assert [(document["id"], document["source"]) for document in found] == list(zip("abc", DOCUMENTS, strict=True))


def test_wrong_paths_are_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "a", "source": ["b"]}\n')
    given = ["run", str(source), str(tmp_path)]
    assert "exists already: name a new file" in refusal(capsys, lambda: ray_translate.main(given))
    given = ["run", str(tmp_path / "none"), str(tmp_path / "out")]
    assert "no such file: wanted JSON Lines" in refusal(capsys, lambda: ray_translate.main(given))
