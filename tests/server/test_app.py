"""Requests as clients send them: documents, texts, files and streams."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scaleformer.translation.files.setup import Setup
from scaleformer.translation.files.translating import translate_files
from scaleformer.translation.word_alignments import as_pharaoh
from tests.server.running import TEXTS, Running, documents, error_of, markdown

LONG = {"max_length_ratio": 1.5, "max_length_offset": 5}


def test_documents_are_translated_as_by_the_translator(server, translator):
    response = server.post(documents=documents(), options=LONG)
    assert response.status_code == 200
    answer = response.json()
    found = translator.translate_documents(translator.request(TEXTS, **LONG))
    assert [document["id"] for document in answer["documents"]] == ["d0", "d1", "d2"]
    assert [document["target"] for document in answer["documents"]] == [list(t.segments) for t in found]
    assert [document["finished"] for document in answer["documents"]] == [t.finished for t in found]
    assert [document["score"] for document in answer["documents"]] == pytest.approx(
        [t.hypotheses[0].score for t in found], rel=1e-4
    )
    assert [document["source_tokens"] for document in answer["documents"]] == [t.source_tokens for t in found]
    assert all(seconds >= 0 for seconds in answer["timing"].values())


def test_a_hundred_at_once_are_those_of_one_after_the_other(server, translator):
    texts = [["a cat sees " * (n % 5), f"it runs {n}", "a dog"][: 1 + n % 3] for n in range(100)]
    options = {"strategy": "beam", "beam_size": 2, **LONG}

    def ask(number: int) -> list[str]:
        response = server.post(documents=[{"id": str(number), "source": texts[number]}], options=options)
        assert response.status_code == 200, response.text
        return response.json()["documents"][0]["target"]

    before = server.service.metrics.registry.get_sample_value("scaleformer_batch_documents_count")
    with ThreadPoolExecutor(100) as pool:
        together = list(pool.map(ask, range(100)))
    assert together == translator.translate(texts, **options)
    batches = server.service.metrics.registry.get_sample_value("scaleformer_batch_documents_count") - before
    assert batches < 50


def test_n_best(server, translator):
    options = {"strategy": "beam", "beam_size": 4, "n_best": 3}
    [document] = server.post(documents=documents()[:1], options=options).json()["documents"]
    [found] = translator.translate_documents(translator.request(TEXTS[:1], **options))
    assert [one["target"] for one in document["n_best"]] == [list(h.segments) for h in found.hypotheses]
    assert document["n_best"][0]["target"] == document["target"]
    scores = [one["score"] for one in document["n_best"]]
    assert scores == sorted(scores, reverse=True)


def test_alignments_are_those_of_the_command(server, translator, tmp_path):
    answer = server.post(documents=documents(), options={"align": True, **LONG}).json()["documents"]
    wanted = translator.align(TEXTS, [document["target"] for document in answer])
    assert [one["alignments"] for one in answer] == [list(map(as_pharaoh, segments)) for segments in wanted]
    assert any(any(one["alignments"]) for one in answer)
    assert "alignments" not in server.post(documents=documents()).json()["documents"][0]
    path = markdown(tmp_path)
    request = {"files": {"file": ("page.md", path.read_bytes())}, "data": {"options": json.dumps({"align": True})}}
    events = server.events("/translate/file?report=stream", **request)
    assert [len(data["alignments"]) for name, data in events if name == "document"] == [4]
    assert "ask with report=stream" in error_of(server.client.post("/translate/file", **request))
    refused = server.post(documents=documents(), options={"align": True, "match_segments": False})
    assert refused.status_code == 422
    assert "set match_segments=true" in error_of(refused)


def test_samples_depend_on_seed_and_name_alone(server, translator):
    options = {"strategy": "sample", "seed": 5, **LONG}
    answer = server.post(documents=documents(), options=options).json()
    found = translator.translate_documents(translator.request(TEXTS, names=["d0", "d1", "d2"], **options))
    assert [document["target"] for document in answer["documents"]] == [list(t.segments) for t in found]


def test_a_text_is_split_and_comes_back_as_one(server):
    text = "the cat sees\n\nit runs on\nand on\n"
    [document] = server.post(documents=[{"text": text}], options=LONG).json()["documents"]
    assert document["id"] == "0"
    assert document["source"] == ["the cat sees", "it runs on and on"]
    assert len(document["target"]) == 2
    blocks = document["text"].rstrip("\n").split("\n\n")
    pairs = zip(document["target"], document["source"], strict=True)
    assert [block.split() for block in blocks] == [(target.strip() or source).split() for target, source in pairs]
    assert bool(document["empty"]) == ("segments without a translation left as they are" in document["notes"])


def test_what_is_cut_long_or_empty_is_told(translator, server, monkeypatch):
    monkeypatch.setitem(vars(translator), "longest_segment", 8)
    source = ["a dog", "the cat sees the cat sees the cat sees", ""]
    [document] = server.post(documents=[{"source": source}], options={"max_length_ratio": 0}).json()["documents"]
    assert not document["finished"]
    assert document["long"] == [1]
    assert document["empty"] == [i for i in (0, 1) if not document["target"][i].strip()]


@pytest.mark.parametrize("name", ["page.md", "notes.txt", "corpus.jsonl", "page.html"])
def test_a_file_is_translated_as_by_the_command(server, translator, tmp_path, name):
    contents = {
        "page.md": markdown(tmp_path).read_bytes(),
        "notes.txt": b"the cat sees\n\nit runs\n",
        "corpus.jsonl": b'{"id": "a", "source": ["a dog", "it runs"]}\n{"id": "b", "source": ["a tree"]}\n',
        "page.html": b"<!DOCTYPE html><html><body><p>a <b>dog</b> runs</p><pre>x</pre></body></html>",
    }
    (tmp_path / name).write_bytes(contents[name])
    (tmp_path / "out").mkdir()
    split = "auto" if name in ("notes.txt", "corpus.jsonl") else "paragraph"
    language = "en" if split == "auto" else None
    translate_files(
        Setup(translator, translator.decoding), [str(tmp_path / name)], str(tmp_path / "out"), split, language
    )
    upload = {"files": {"file": (name, contents[name])}, "data": {"options": json.dumps({"source_language": "en"})}}
    if split == "paragraph":
        upload["data"] = {"options": json.dumps({"split": "paragraph"})}
    response = server.client.post("/translate/file", **upload)
    assert response.status_code == 200, response.text
    assert response.content == (tmp_path / "out" / name).read_bytes()
    written = name.replace(".", ".translated.")
    assert written in response.headers["content-disposition"]
    report = json.loads(response.headers["x-scaleformer-report"])
    assert report["name"] == written
    assert report["segments"] == {"page.md": 4, "notes.txt": 2, "corpus.jsonl": 3, "page.html": 1}[name]
    answer = server.client.post("/translate/file?report=json", **upload).json()
    assert base64.b64decode(answer["content"]) == response.content
    assert answer["report"]["notes"] == report["notes"]


def test_given_translations_are_written(server, tmp_path):
    """Of a text and of a file: as they are, with what their placeholders stand for."""
    body = {"documents": [{"text": "the cat\n\nsees https://a.org/b now", "target": ["die Katze", "sieht ⟨1⟩ nun"]}]}
    [document] = server.post(**body).json()["documents"]
    assert document["text"] == "die Katze\n\nsieht https://a.org/b nun"
    [(_, source), *_] = server.events("/translate/stream", json=body)
    assert source["documents"][0]["kept"] == [[], ["https://a.org/b"]]
    files = {"file": ("page.md", markdown(tmp_path).read_bytes())}
    targets = [["die Katze", "es ⟨1⟩läuft⟨2⟩ mit ⟨3⟩", "ein Hund", "ein Haus"]]
    response = server.client.post("/translate/file", files=files, data={"targets": json.dumps(targets)})
    assert response.content.decode() == "# die Katze\n\nes *läuft* mit `x()`\n\n- ein Hund\n- ein Haus\n"
    few = server.client.post("/translate/file", files=files, data={"targets": "[[]]"})
    assert (few.status_code, error_of(few)) == (422, "page.md: 0 target segments, wanted 4")
    none = server.client.post("/translate/file", files=files, data={"targets": "[]"})
    assert (none.status_code, error_of(none)) == (422, "targets: of 0 documents, wanted 1")
    wrong = server.post(documents=[{"source": ["a"], "target": ["b"]}])
    assert (wrong.status_code, "goes with text" in error_of(wrong)) == (422, True)


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_what_differs_from_a_draft_is_told(server, translator, strategy):
    found = translator.translate(TEXTS, strategy=strategy, **LONG)
    first = [*found[0][:1], "another", "and more"]
    drafts = [first, ["\U0001f600 \u4e00"], []]
    asked = [{"source": source, "draft": draft} for source, draft in zip(TEXTS, drafts, strict=True)]
    answers = server.post(documents=asked, options={"strategy": strategy, **LONG}).json()["documents"]
    assert [answer["target"] for answer in answers] == found
    assert [answer["changed"] for answer in answers] == [[1], [0], [0, 1, 2]]
    [answer] = server.post(documents=[{"source": TEXTS[0]}]).json()["documents"]
    assert "changed" not in answer
    [answer] = server.post(documents=[{"text": "a dog\n", "draft": ["x"]}]).json()["documents"]
    assert answer["changed"] == [0]
    wrong = server.post(documents=[{"source": ["a"], "draft": "b"}])
    assert (wrong.status_code, list(wrong.json())) == (422, ["error"])
    assert "documents.0.draft='b': Input should be a valid list" in wrong.json()["error"]


def test_fixed_segments_and_beginnings(server, translator):
    """In documents, texts and files, as by the translator; two requests with other ones in a batch."""
    fixed, begin = {0: "haus"}, {1: "ei"}
    wanted = translator.translate([TEXTS[2]], fixed=[fixed], begin=[begin], match_segments=True)
    forced = {"fixed": {"0": "haus"}, "begin": {"1": "ei"}}
    options = {"match_segments": True}
    asked = [{"source": TEXTS[2], **forced}, {"source": TEXTS[2]}]
    first, second = server.post(documents=asked, options=options).json()["documents"]
    assert first["target"] == wanted[0]
    assert second["target"] == translator.translate([TEXTS[2]], match_segments=True)[0]
    [text] = server.post(documents=[{"text": "\n".join(TEXTS[2]), **forced}]).json()["documents"]
    assert text["target"] == wanted[0]
    line = json.dumps({"id": "a", "source": TEXTS[2], **forced}) + "\n"
    file = server.client.post("/translate/file", files={"file": ("a.jsonl", line.encode())})
    assert json.loads(file.content)["hypothesis"] == wanted[0]


def test_terms_of_one_document(server, translator):
    """In documents and files, as by the translator; they win over those of the options."""
    own = {"dog": "haus", "cat": "ei"}
    texts = [["a dog", "the cat sees"], ["a dog runs", "a cat"]]
    wanted = translator.translate(texts, terms=[{"dog": "baum"} | own, {"dog": "baum"}], match_segments=True)
    options = {"match_segments": True, "terms": {"dog": "baum"}}
    asked = [{"id": "a", "source": texts[0], "terms": own}, {"id": "b", "source": texts[1]}]
    found = server.post(documents=asked, options=options).json()["documents"]
    assert [document["target"] for document in found] == wanted
    assert ["haus" in wanted[0][0], "ei" in wanted[0][1], "baum" in wanted[1][0]] == [True, True, True]
    lines = "".join(f"{json.dumps(document)}\n" for document in asked).encode()
    upload = {"files": {"file": ("a.jsonl", lines)}, "data": {"options": json.dumps(options)}}
    response = server.client.post("/translate/file", **upload)
    assert [json.loads(line)["hypothesis"] for line in response.content.splitlines()] == wanted

    for terms, wrong in [
        ({"/a+/": "b"}, "a: terms: '/a+/' is a regular expression, which a server does not take"),
        ({str(n): "b" for n in range(1001)}, "a: terms: 1,001, more than 1,000: send those of the text"),
    ]:
        line = json.dumps(asked[0] | {"terms": terms}).encode()
        for response in (
            server.post(documents=[asked[0] | {"terms": terms}]),
            server.client.post("/translate/file", files={"file": ("a.jsonl", line)}),
        ):
            assert (response.status_code, error_of(response).removeprefix("a.jsonl: ")) == (422, wrong)
    several = server.post(documents=asked, options={"strategy": "beam", "n_best": 2})
    assert (several.status_code, "terms are enforced in one translation" in error_of(several)) == (422, True)


def test_segments_stream_before_their_document(server, translator):
    events = server.events("/translate/stream", json={"documents": documents(), "options": LONG})
    names = [name for name, _ in events]
    assert names[0] == "source"
    assert names[-1] == "end"
    assert [d["source"] for d in events[0][1]["documents"]] == TEXTS
    found = translator.translate(TEXTS, **LONG)
    segments = {(e["document"], e["segment"]): e["target"] for name, e in events if name == "segment"}
    assert segments == {(n, i): text for n, texts in enumerate(found) for i, text in enumerate(texts)}
    assert [e["target"] for name, e in sorted(events, key=str) if name == "document"] == found
    assert names.index("segment") < names.index("document")


def test_a_beam_streams_documents(server):
    options = {"strategy": "beam", "beam_size": 2}
    events = server.events("/translate/stream", json={"documents": documents(), "options": options})
    assert [name for name, _ in events] == ["source", "document", "document", "document", "end"]


def test_a_file_streams(server, tmp_path):
    files = {"file": ("page.md", markdown(tmp_path).read_bytes())}
    events = server.events("/translate/file?report=stream", files=files)
    assert [name for name, _ in events if name != "segment"] == ["source", "document", "file", "end"]
    whole = server.client.post("/translate/file", files=files)
    [document] = [event for name, event in events if name == "document"]
    assert set(document) == {"document", "target", "cut"}
    assert document["cut"]
    assert len(document["cut"]) == json.loads(whole.headers["x-scaleformer-report"])["cut"]
    content = next(event["content"] for name, event in events if name == "file")
    assert base64.b64decode(content) == whole.content


def test_head_is_as_get_without_a_body(server):
    for path, status in (("/health", 200), ("/", 200), ("/metrics", 200), ("/nothing", 404), ("/translate", 405)):
        response = server.client.head(path)
        assert (response.status_code, response.content) == (status, b"")


def test_health_metrics_and_openapi(server, translator):
    health = server.client.get("/health").json()
    assert (health["status"], health["model"], health["token"]) == ("ok", "run", False)
    assert health["sha256"] == translator.sha256
    server.post(documents=documents())
    text = server.client.get("/metrics").text
    assert re.search(r'^scaleformer_requests_total\{path="/translate",status="200"\} [1-9]', text, re.MULTILINE)
    assert re.search(r"^scaleformer_segments_total [1-9]", text, re.MULTILINE)
    paths = server.client.get("/openapi.json").json()["paths"]
    own = {"/translate", "/translate/stream", "/translate/file", "/health", "/metrics"}
    assert own | {"/detect", "/languages", "/translate_file", "/v2/translate", "/v2/usage"} < set(paths)
    assert "HTTPValidationError" not in json.dumps(paths)
    assert server.client.get("/docs").status_code == 200


def test_the_page_holds_everything(server):
    response = server.client.get("/")
    assert "connect-src 'self'" in response.headers["content-security-policy"]
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)|https?://|@import|url\(""", response.text)


def test_the_folder_of_uploads_is_gone(server, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert server.client.post("/translate/file", files={"file": ("a.txt", b"a dog\n")}).status_code == 200
    assert list(Path(tmp_path).iterdir()) == []


def test_a_file_of_many_languages_gets_the_one_that_is_asked_for(server: Running) -> None:
    """Also from a model that does not say what it writes."""
    catalog = json.dumps({"sourceLanguage": "en", "strings": {"The cat sees.": {}}}).encode()
    files = {"file": ("a.xcstrings", catalog)}
    refused = server.client.post("/translate/file", files=files)
    assert error_of(refused).startswith("a.xcstrings: a String Catalog has many languages")
    own = server.client.post("/translate/file", files=files, data={"options": '{"target_language": "es"}'})
    made = server.client.post("/translate_file", files=files, data={"source": "en", "target": "es"}).json()
    for response in (own, server.client.get(made["translatedFileUrl"])):
        assert response.json()["strings"]["The cat sees."]["localizations"]["es"]["stringUnit"]["value"]
