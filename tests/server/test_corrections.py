"""Corrections: kept as a corpus that training reads, used for later documents, off by default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.formats.json_lines import read_jsonl
from scaleformer.server.corrections import Corrections
from scaleformer.translation.translation_memory import TranslationMemory
from tests.server.running import error_of, markdown, running

ONE = {"document": "a.md", "segment": 1, "source": "it runs", "translation": "x", "correction": "corre"}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "corrections.jsonl"


def test_they_are_kept_and_used_the_last_one_first(translator, kept):
    document = {"source": ["the cat sees", "it  runs", "a dog"]}
    with running(translator, corrections=Corrections(kept)) as server:
        assert server.client.get("/health").json()["corrections"] is True
        [before] = server.post(documents=[document]).json()["documents"]
        assert before["remembered"] == []
        for text in ("corre", "va"):
            assert server.post("/corrections", corrections=[{**ONE, "correction": text}]).json() == {"kept": 1}
        [after] = server.post(documents=[document]).json()["documents"]
        assert (after["remembered"], after["target"][1]) == ([1], "va")
        [mine] = server.post(documents=[{**document, "fixed": {"1": "mine"}}]).json()["documents"]
        assert (mine["remembered"], mine["target"][1]) == ([], "mine")
        [drafted] = server.post(documents=[{**document, "draft": before["target"]}]).json()["documents"]
        assert drafted["target"] == before["target"]  # its client has seen them, and undid them
        libre = server.post(q="it runs", source="auto", target="es").json()
        assert libre["translatedText"].strip() == "va"
    records = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert records[1] == {
        "id": "a.md:1", "source": ["it runs"], "target": ["va"], "document": "a.md", "segment": 1, "translation": "x",
        "model": translator.sha256,
    }  # fmt: skip
    assert [(d.source, d.target) for d in read_jsonl(kept)] == [(("it runs",), ("corre",)), (("it runs",), ("va",))]
    assert TranslationMemory.read(str(kept)).entries["it runs"]["va"] == 2
    with running(translator, corrections=Corrections(kept)) as server:  # another process reads them
        assert server.post(documents=[document]).json()["documents"][0]["target"] == after["target"]


def test_code_of_a_file_stays_where_the_correction_has_it(translator, kept, tmp_path):
    path = markdown(tmp_path)
    with running(translator, corrections=Corrections(kept)) as server:
        some = [{**ONE, "source": "it <b>runs</b> by `x()`", "correction": "no"}]
        some += [{**ONE, "source": "a dog", "correction": "un perro"}]
        server.post("/corrections", corrections=some)
        response = server.client.post("/translate/file", files={"file": ("page.md", path.read_bytes())})
    assert "\n- un perro\n" in response.text
    assert "\nno\n" not in response.text  # its marks differ


def test_wrong_ones_are_refused_and_by_default_all(translator, server, kept):
    response = server.post("/corrections", corrections=[ONE])
    assert response.status_code == 404
    assert "start the server with corrections=FILE" in error_of(response)
    with running(translator, corrections=Corrections(kept)) as other:
        for body, fault in (
            ({"corrections": []}, "corrections: List should have at least 1 item"),
            ({"corrections": [{**ONE, "correction": " "}]}, "correction"),
            ({"corrections": [{**ONE, "model": "x"}]}, "model"),
            ({"corrections": [ONE], "tag": "2xx"}, "2xx"),
        ):
            response = other.post("/corrections", **body)
            assert response.status_code == 422, body
            assert fault in error_of(response)
    assert not kept.exists()
