"""Requests that are wrong or cannot be met: one-line errors."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tests.server.running import TEXTS, Running, documents, error_of


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        ({"fixed": {"3": "x"}}, "0: fixed[3]: no such source segment: there are 3, numbered from 0"),
        ({"fixed": {"one": "x"}}, "0: fixed['one']: no such source segment"),
        ({"fixed": {"0": "x"}, "begin": {"0": "x"}}, "0: segment 0 is in both fixed and begin"),
        ({"fixed": ["x"]}, "documents.0.fixed: Input should be a valid dictionary"),
        ({"fixed": {"0": 1}}, "documents.0.fixed.0=1: Input should be a valid string"),
    ],
)
def test_fixed_segments_that_do_not_fit(server, forced, message):
    answer = server.post(documents=[{"source": TEXTS[2], **forced}], options={"match_segments": True})
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_what_goes_wrong_in_a_stream_is_an_event(server, monkeypatch):
    def fails(*_, **__):
        raise ValueError("the model gives NaN logits")

    monkeypatch.setattr("scaleformer.translation.pieces.PieceTranslator._decode", fails)
    events = server.events("/translate/stream", json={"documents": documents()})
    assert events[-1] == ("error", {"error": "the model gives NaN logits", "status": 422})


BAD = {
    "nothing": ({}, "documents: missing; /docs says what is wanted"),
    "empty": ({"documents": []}, "documents: List should have at least 1 item"),
    "no source": ({"documents": [{"id": "a"}]}, "documents.0: wanted source (a list of segments) or text, one of"),
    "both": ({"documents": [{"source": ["a"], "text": "a"}]}, "wanted source (a list of segments) or text, one of"),
    "number": ({"documents": [{"source": [1]}]}, "documents.0.source.0=1: Input should be a valid string"),
    "key": ({"documents": [{"src": ["a"]}]}, "documents.0.src: no such setting; there are id, source, text"),
    "surrogate": ({"documents": [{"source": ["\ud800"]}]}, "documents.0.source.0='\\ud800': lone surrogate"),
    "option": (
        {"options": {"beams": 3}},
        "options.beams: no such setting (did you mean options.beam_size?); there are strategy, ",
    ),
    "beam": ({"options": {"beam_size": 17}}, "options.beam_size=17: Input should be less than or equal to 16"),
    "strategy": ({"options": {"strategy": "best"}}, "options.strategy='best': Input should be 'greedy', 'beam' or"),
    "not read": ({"options": {"beam_size": 4}}, "beam_size is 4: the strategy is greedy, which has no beam"),
    "n-best": ({"options": {"n_best": 3}}, "decoding.n_best is 3: it must be at most 1 with decoding.strategy=greedy"),
    "pieces": (
        {"options": {"n_best": 2, "strategy": "beam", "mode": "segment"}},
        "n_best=2: only the best hypotheses of pieces can be joined; set n_best=1",
    ),
    "tag": ({"options": {"tag": "2es"}}, "tag='2es': the model knows no such tag"),
    "sentences": ({"documents": [{"text": "A."}], "options": {"split": "sentence"}}, "does not say which language"),
    "model": ({"model": "/etc/passwd"}, "model: no such setting; there are documents, options"),
    "near": ({"documents": None, "document": []}, "document: no such setting (did you mean documents?)"),
    "several": ({"options": {"a": 1, "b": 1, "c": 1, "d": 1}}, "; and 1 more"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_line(server, name):
    body, message = BAD[name]
    body = {**({} if name in ("nothing",) else {"documents": documents()}), **body}
    response = server.client.post("/translate", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert message in error_of(response)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'{"documents": 1e999}', b"\xff\xfe", b"null", b"9" * 10_000], ids=range(7)
)
def test_what_is_no_json_is_refused(server, content):
    response = server.client.post("/translate", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert error_of(response)


def test_what_is_no_json_says_where_or_why(server):
    body = b'{"documents": [{"text": "a"},]}'
    response = server.client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert re.fullmatch(r"the body is not JSON: .+ at character (29|30)", error_of(response))
    response = server.client.post("/translate", content=b'{"documents": [{"text": "a"}]}')
    assert response.status_code == 422
    assert error_of(response).endswith("send it with the header Content-Type: application/json")


def test_paths_and_methods(server):
    assert server.client.get("/translate").status_code == 405
    assert error_of(server.client.get("/translate")) == "GET /translate: wanted POST"
    assert server.client.get("/nothing").status_code == 404
    assert error_of(server.client.get("/nothing")).startswith("'/nothing': no such path")


def test_the_file_is_refused_where_it_cannot_be_read(server):
    def upload(name: str, content: bytes, **data: str) -> httpx.Response:
        return server.client.post("/translate/file", files={"file": (name, content)}, data=data)

    refused = {
        "a.pdf": (b"%PDF-1.5 ...", "a.pdf: a PDF (`pdftotext` makes text of it) cannot be translated"),
        "a.rst": (b"Title\n=====\n", "a.rst: reStructuredText (`sphinx-build -b gettext` makes PO of it) cannot"),
        "../b.docx": (b"PK\x03\x04 word/", "b.docx: not a sound docx file"),
        "c.txt": (b"\xff\xff", "c.txt:1: not UTF-8"),
        "d.txt.gz": (b"\x1f\x8b....", "d.txt.gz: is compressed"),
        "e.md": (b"\xff", "e.md:1: not UTF-8"),
    }
    for name, (content, message) in refused.items():
        response = upload(name, content)
        assert response.status_code == 422, response.text
        assert error_of(response).startswith(message)
    assert "options" in error_of(upload("a.txt", b"a dog", options="{"))
    assert "strategy" in error_of(upload("a.txt", b"a dog", options='{"strategy": "best"}'))
    assert error_of(server.client.post("/translate/file")) == "file: missing; /docs says what is wanted"


def test_nothing_fails_in_a_server_of_its_own(translator, monkeypatch):
    """An unexpected error in the worker is one line for the client."""
    server = Running(translator)
    try:
        monkeypatch.setitem(vars(translator), "translate_documents", None)
        response = server.post(documents=documents())
        assert response.status_code == 500
        assert error_of(response) == "TypeError: internal server error, see the log"
    finally:
        server.stop()
