"""Several models in one server: the languages of a request choose, whoever asks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaleformer.server import models
from scaleformer.server.corrections import Corrections
from scaleformer.server.models import Model, choose, find_language, parse_pair
from scaleformer.translation.translator import Translator
from tests.runs import make_run
from tests.server.running import Running, error_of, running

LONG = {"strategy": "greedy", "max_length_ratio": 1.5, "max_length_offset": 5, "min_length_ratio": 0.5}
CAT = "The cat of the neighbours sees the house."
PAIRS = ("en-es", "en-pt-BR", "fr-es")
GATO = "Le chat de la voisine est dans la maison depuis ce matin."


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    folder = tmp_path_factory.mktemp("models")
    found = []
    for seed, pair in enumerate(PAIRS, 1):
        translator = Translator.load(make_run(folder / pair, {"decoding": LONG}, seed=seed), "cpu")
        translator.segmentation["grain"] = "sentence"  # type: ignore[index]
        found.append(Model(translator, translator.decoding, pair, parse_pair(pair)))
    return found


@pytest.fixture(scope="module")
def server(several: list[Model], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    corrections = Corrections(tmp_path_factory.mktemp("kept") / "corrections.jsonl")
    with running(several, corrections=corrections) as found:
        yield found


def expected(several: list[Model], pair: str, *segments: str) -> list[str]:
    return several[PAIRS.index(pair)].translator.translate([segments])[0]


def test_the_models_differ(several: list[Model]) -> None:
    assert len({tuple(expected(several, pair, CAT)) for pair in PAIRS}) == 3


@pytest.mark.parametrize("pair", PAIRS)
def test_requests_name_their_languages(server: Running, several: list[Model], pair: str) -> None:
    source, _, target = pair.partition("-")
    wanted = expected(several, pair, CAT)
    options = {"source_language": source, "target_language": target}
    [own] = server.post(documents=[{"source": [CAT]}], options=options).json()["documents"]
    assert own["target"] == wanted
    assert server.post(q=CAT, source=source, target=target).json() == {"translatedText": wanted[0]}
    [deepl] = server.post("/v2/translate", text=[CAT], source_lang=source, target_lang=target).json()["translations"]
    assert deepl["text"] == wanted[0]
    events = server.events("/translate/stream", json={"documents": [{"text": CAT}], "options": options})
    assert {key: events[0][1][key] for key in options} == options
    upload = {"files": {"file": ("a.txt", CAT.encode())}, "data": {"options": json.dumps(options)}}
    response = server.client.post("/translate/file", **upload)
    assert response.text.strip() == wanted[0]
    assert json.loads(response.headers["x-scaleformer-report"])["name"] == f"a.{target}.txt"


def test_the_language_is_found(server: Running, several: list[Model]) -> None:
    wanted = expected(several, "fr-es", GATO)
    found = server.post(q=GATO, source="auto", target="es").json()
    assert (found["translatedText"], found["detectedLanguage"]["language"]) == (wanted[0], "fr")
    [deepl] = server.post("/v2/translate", text=[GATO], target_lang="ES").json()["translations"]
    assert (deepl["text"], deepl["detected_source_language"]) == (wanted[0], "FR")
    [own] = server.post(documents=[{"text": GATO}], options={"target_language": "es"}).json()["documents"]
    assert own["target"] == wanted
    upload = {"files": {"file": ("a.md", GATO.encode())}, "data": {"target": "es"}}
    made = server.client.post("/translate_file", **upload).json()["translatedFileUrl"]
    assert server.client.get(made).text.strip() == wanted[0]


def test_what_no_model_translates_is_refused_in_one_line(server: Running) -> None:
    known = "the models translate en to es, en to pt-BR, fr to es"
    options = {"source_language": "fr", "target_language": "pt"}
    response = server.post(documents=[{"source": [CAT]}], options=options)
    assert (response.status_code, error_of(response)) == (422, f"'fr to pt' is not supported: {known}")
    response = server.post(q=CAT, source="en", target="de")
    assert (response.status_code, error_of(response)) == (400, f"'en to de' is not supported: {known}")
    files = {"file": ("a.txt", CAT.encode())}
    response = server.client.post("/translate_file", files=files, data={"source": "en", "target": "de"})
    assert (response.status_code, error_of(response)) == (400, f"'en to de' is not supported: {known}")
    response = server.post(documents=[{"source": [CAT]}], options={"source_language": "en"})
    assert (response.status_code, error_of(response)) == (422, f"the target language is missing: {known}")
    both = {"tag": "2es", "target_language": "es"}
    assert "leave one of them out" in error_of(server.post(documents=[{"source": [CAT]}], options=both))
    german = "Die Katze der Nachbarin sitzt seit heute Morgen auf dem Dach des Hauses, und niemand holt sie herunter."
    response = server.post(q=german, source="auto", target="es")
    assert error_of(response) == "the text looks like de, the models read en, fr: name the source"
    assert re.fullmatch(
        r"the text may be \w\w \(\d+%\) or \w\w \(\d+%\): name the source",
        error_of(server.post(q="12", source="auto", target="es")),
    )


def test_all_are_named(server: Running, several: list[Model]) -> None:
    server.post(q=CAT, source="en", target="pt")
    english = {"code": "en", "name": "English", "targets": ["es", "pt-BR"]}
    assert server.client.get("/languages").json() == [english, {"code": "fr", "name": "French", "targets": ["es"]}]
    for kind, wanted in (("source", ["EN", "FR"]), ("target", ["ES", "PT-BR"])):
        found = server.client.get(f"/v2/languages?type={kind}").json()
        assert [one["language"] for one in found] == wanted
    health = server.client.get("/health").json()
    assert [(one["model"], one["source"], one["targets"]) for one in health["models"]] == [
        ("en-es", "en", ["es"]), ("en-pt-BR", "en", ["pt-BR"]), ("fr-es", "fr", ["es"]),
    ]  # fmt: skip
    assert [one["sha256"] for one in health["models"]] == [one.translator.sha256 for one in several]
    assert "sha256" not in health
    metrics = server.client.get("/metrics").text
    for pair in PAIRS:
        assert f'scaleformer_segments_total{{model="{pair}"}}' in metrics
    assert not re.search(r'^scaleformer_documents_total\{model="en-pt-BR"\} 0', metrics, re.MULTILINE)


def test_the_clients_of_others(server: Running, several: list[Model]) -> None:
    libre = pytest.importorskip("libretranslatepy").LibreTranslateAPI(server.url)
    assert libre.translate(CAT, "en", "pt") == expected(several, "en-pt-BR", CAT)[0]
    assert libre.translate(GATO, "auto", "es") == expected(several, "fr-es", GATO)[0]
    deepl = pytest.importorskip("deepl").Translator("any", server_url=server.url, send_platform_info=False)
    assert (
        deepl.translate_text(CAT, source_lang="EN", target_lang="PT-BR").text == expected(several, "en-pt-BR", CAT)[0]
    )
    found = deepl.translate_text(GATO, target_lang="ES")
    assert (found.text, found.detected_source_lang) == (expected(several, "fr-es", GATO)[0], "FR")


def test_corrections_are_of_one_pair(server: Running) -> None:
    pair = {"source_language": "en", "target_language": "es"}
    one = {"document": "a", "segment": 0, "source": CAT, "translation": "x", "correction": "El gato."}
    assert server.post("/corrections", corrections=[one], **pair).json() == {"kept": 1}
    assert server.post(q=CAT, source="en", target="es").json()["translatedText"] == "El gato."
    assert server.post(q=CAT, source="en", target="pt").json()["translatedText"] != "El gato."
    assert "the source language is missing" in error_of(
        server.post("/corrections", corrections=[one], target_language="es")
    )


def test_a_pair_is_one_that_the_model_translates(tmp_path: Path) -> None:
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    translator.segmentation.update({"source_language": "de", "target_language": "fr"})  # type: ignore[attr-defined]
    assert Model(translator, translator.decoding, "de-fr", ("de", "fr")).writes == {"fr": None}
    with pytest.raises(ValueError, match="'en to fr' is not supported: this model translates de to fr"):
        Model(translator, translator.decoding, "en-fr", ("en", "fr"))
    assert parse_pair("EN-pt-BR") == ("en", "pt-BR")
    for wrong in ("english-es", "en", "en-", "-es"):
        with pytest.raises(ValueError, match="wanted the two languages, as in en-es"):
            parse_pair(wrong)


def test_exactly_the_language_asked_for_comes_before_its_kin(several: list[Model]) -> None:
    translator = several[0].translator
    brazil, portugal = (Model(translator, translator.decoding, f"en-{code}", ("en", code)) for code in ("pt-BR", "pt"))
    for target, wanted in (("pt", portugal), ("PT-br", brazil), ("pt-PT", brazil)):
        found = choose([brazil, portugal], "en", target)
        assert found is not None
        assert found.model is wanted


def test_without_detection_one_language_is_taken_several_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError

    monkeypatch.setattr(models, "_identifier", missing)
    assert find_language(["en"], GATO) == {"language": "en", "confidence": 0.0}
    with pytest.raises(ValueError, match="the source language is missing, and its detection needs py3langid"):
        find_language(["en", "fr"], GATO)
