"""Clients of LibreTranslate and DeepL: their own libraries where they are installed, and their requests by hand."""

from __future__ import annotations

import json
import socket
from urllib.request import urlopen

import httpx
import pytest

from scaleformer.server.models import detect
from scaleformer.translation.translator import Translator
from tests.runs import make_run
from tests.server.running import Running, error_of, running

LONG = {"strategy": "greedy", "max_length_ratio": 1.5, "max_length_offset": 5, "min_length_ratio": 0.5}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    found = Translator.load(make_run(tmp_path_factory.mktemp("clients") / "run", {"decoding": LONG}), "cpu")
    found.segmentation.update({"source_language": "en", "target_language": "es", "grain": "sentence"})  # type: ignore[attr-defined]
    return found


def expected(translator: Translator, *segments: str) -> list[str]:
    return translator.translate([segments])[0]


def test_the_client_of_libretranslate(server: Running, translator: Translator) -> None:
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(server.url)
    assert client.translate("The cat sees.", "en", "es") == expected(translator, "The cat sees.")[0]
    assert client.languages() == [{"code": "en", "name": "English", "targets": ["es"]}]
    assert client.detect("Where is the library of this town?")[0]["language"] == "en"


def test_texts_are_one_document(server: Running, translator: Translator) -> None:
    texts = ["The cat sees.", "It runs. A dog sleeps."]
    first, second, third = expected(translator, "The cat sees.", "It runs.", "A dog sleeps.")
    body = {"q": texts, "source": "en", "target": "es", "format": "text", "api_key": ""}
    assert server.post(**body).json() == {"translatedText": [first, f"{second} {third}"]}
    body = {"text": texts, "source_lang": "EN", "target_lang": "ES"}
    found = server.post("/v2/translate", **body).json()["translations"]
    assert [one["text"] for one in found] == [first, f"{second} {third}"]
    assert [(one["detected_source_language"], one["billed_characters"]) for one in found] == [("EN", 13), ("EN", 22)]
    alone = server.post("/v2/translate", **{**body, "text": texts[1:], "context": texts[0]}).json()["translations"]
    assert alone == found[1:]


def test_html_keeps_its_tags(server: Running) -> None:
    page = '<p class="a">The cat <b>sees</b>.</p><ul><li>It runs.</li></ul>'
    found = server.post(q=page, source="en", target="es", format="html").json()["translatedText"]
    assert found.startswith('<p class="a">')
    assert "<ul><li>" in found
    assert server.post("/v2/translate", text=[page], target_lang="ES", tag_handling="html").json()["translations"]


def test_alternatives_differ_from_the_first(server: Running) -> None:
    found = server.post(q="The cat sees.", source="en", target="es", alternatives=3).json()
    assert 1 <= len(found["alternatives"]) <= 3
    assert len({found["translatedText"], *found["alternatives"]}) == 1 + len(found["alternatives"])


def test_a_source_that_is_not_named(server: Running) -> None:
    found = server.post(q="The cat sees the dog in the house.", source="auto", target="es").json()
    assert found["detectedLanguage"]["language"] == "en"
    french = (
        "Le chat de la voisine est sur le toit de la maison depuis ce matin, et personne ne sait le faire descendre."
    )
    response = server.post(q=french, source="auto", target="es")
    assert response.status_code == 400
    assert error_of(response) == "the text looks like fr, this model reads en: name the source"


@pytest.mark.parametrize(("source", "target"), [("fr", "es"), ("en", "fr")])
def test_other_languages_are_refused(server: Running, source: str, target: str) -> None:
    response = server.post(q="The cat.", source=source, target=target)
    assert response.status_code == 400
    assert error_of(response) == f"'{source} to {target}' is not supported: this model translates en to es"
    response = server.post("/v2/translate", text=["The cat."], source_lang=source, target_lang=target)
    assert response.status_code == 400
    assert response.json()["message"] == f"'{source} to {target}' is not supported: this model translates en to es"


def test_a_file_is_kept_to_be_fetched(server: Running, translator: Translator) -> None:
    files = {"file": ("page.md", b"# The cat sees.\n")}
    response = server.client.post("/translate_file", files=files, data={"source": "en", "target": "es"})
    with urlopen(response.json()["translatedFileUrl"]) as opened:
        assert opened.read().decode() == f"# {expected(translator, 'The cat sees.')[0]}\n"
    assert server.client.get("/download_file/unknown/page.md").status_code == 404


def test_the_settings_of_a_page_of_libretranslate(server: Running) -> None:
    found = server.client.get("/frontend/settings").json()
    assert found["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "es", "name": "Spanish"},
    }
    assert ".docx" in found["supportedFilesFormat"]
    assert found["keyRequired"] is False


def test_the_client_of_deepl(server: Running, translator: Translator) -> None:
    deepl = pytest.importorskip("deepl")
    client = deepl.Translator("any", server_url=server.url, send_platform_info=False)
    before = client.get_usage().character.count
    found = client.translate_text(["The cat sees.", "It runs."], source_lang="EN", target_lang="ES", context="A dog.")
    assert [one.text for one in found] == expected(translator, "A dog.", "The cat sees.", "It runs.")[1:]
    assert client.get_usage().character.count == before + 21
    assert [(one.code, one.name) for one in client.get_target_languages()] == [("ES", "Spanish")]
    with pytest.raises(deepl.DeepLException, match="not supported"):
        client.translate_text("A cat.", target_lang="FR")
    with pytest.raises(deepl.DeepLException, match="this model has one only"):
        client.translate_text("A cat.", target_lang="ES", formality="more")
    made = client.create_glossary("ours", "EN", "ES", {"cat": "gato"})
    assert made.entry_count == 1
    assert [one.glossary_id for one in client.list_glossaries()] == [made.glossary_id]
    with_terms = client.translate_text("The cat sees.", source_lang="EN", target_lang="ES", glossary=made)
    assert "gato" in with_terms.text
    client.delete_glossary(made)
    with pytest.raises(deepl.DeepLException, match="not known"):
        client.translate_text("The cat sees.", source_lang="EN", target_lang="ES", glossary=made)


def test_entries_that_are_no_pairs_are_refused(server: Running) -> None:
    body = {"name": "ours", "source_lang": "en", "target_lang": "es", "entries": "a\tb\nalone"}
    response = server.post("/v2/glossaries", **body)
    assert response.status_code == 400
    assert response.json()["message"] == "entries: line 2: wanted a source and a target, in tsv"


def test_the_token_in_each_way(translator: Translator) -> None:
    body = {"q": "The cat.", "source": "en", "target": "es"}
    with running(translator, token="secret") as server:
        del server.client.headers["Authorization"]
        assert server.post(**body).status_code == 401
        assert server.post(**body, api_key="wrong").status_code == 401
        assert server.post(**body, api_key="secret").status_code == 200
        assert server.client.post("/translate", data={**body, "api_key": "secret"}).status_code == 200
        files = {"file": ("page.txt", b"The cat.")}
        for key, status in (("secret", 200), ("wrong", 401)):
            fields = {"target": "es", "api_key": key}
            assert server.client.post("/translate_file", files=files, data=fields).status_code == status
        headers = {"Authorization": "DeepL-Auth-Key secret"}
        deepl = {"text": "The cat.", "target_lang": "ES"}
        assert server.client.post("/v2/translate", data=deepl, headers=headers).status_code == 200
        assert server.client.post("/v2/translate", data={**deepl, "api_key": "secret"}).status_code == 401
        assert server.client.get("/languages").status_code == 200


def test_a_refusal_arrives_though_the_body_comes_late(translator: Translator) -> None:
    with running(translator, token="secret") as server:
        address = server.client.base_url
        with socket.create_connection((address.host, address.port), timeout=60) as connection:
            connection.sendall(b"POST /v2/translate HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                connection.recv(1)  # no answer yet
            connection.settimeout(60)
            connection.sendall(b"late")
            assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_faults_of_a_request_are_named_as_in_others(server: Running) -> None:
    response = server.post(q=3, source="en", target="es")
    assert response.status_code == 422
    assert error_of(response).startswith("q")
    response = server.client.post(
        "/translate", content=json.dumps({"q": "a"}), headers={"Content-Type": "application/json"}
    )
    assert error_of(response) == "target: missing; /docs says what is wanted"


def test_confidence_is_in_percent() -> None:
    assert 90 < detect("Where is the library of this town, please?")[0]["confidence"] <= 100


def test_glossaries_of_csv_and_their_size(server: Running) -> None:
    body = {"name": "ours", "source_lang": "en", "target_lang": "es", "entries_format": "csv"}
    made = server.post("/v2/glossaries", **body, entries='"the cat, the","el gato"\na,b').json()
    assert made["entry_count"] == 2
    ask = {"text": ["the cat, the dog"], "source_lang": "EN", "target_lang": "ES", "glossary_id": made["glossary_id"]}
    assert "el gato" in server.post("/v2/translate", **ask).json()["translations"][0]["text"]
    response = server.post("/v2/glossaries", **body, entries="\n".join(f"a{n},b" for n in range(1001)))
    assert (response.status_code, response.json()["message"]) == (400, "entries: 1,001, more than 1,000")


def test_a_translated_file_is_fetched_without_the_token(translator: Translator) -> None:
    files = {"file": ("page.md", b"# The cat sees.\n")}
    with running(translator, "secret") as server:
        data = {"source": "en", "target": "es", "api_key": "secret"}
        response = httpx.post(f"{server.url}/translate_file", files=files, data=data, trust_env=False, timeout=120)
        assert httpx.get(response.json()["translatedFileUrl"], trust_env=False).status_code == 200
        assert httpx.get(f"{server.url}/download_file/guess/page.md", trust_env=False).status_code == 404
        deep = httpx.post(f"{server.url}/translate", content=b"[" * 100_000, trust_env=False)
        assert deep.status_code == 401


def test_a_body_that_is_no_text(server: Running) -> None:
    response = server.client.post("/translate", content=b'{"q": "\xff"}', headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert error_of(response) == "the body cannot be read: wanted JSON in UTF-8, or a form"
