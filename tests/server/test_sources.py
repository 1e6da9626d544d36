"""Names of uploads, archives that unpack to absurd sizes, and how prose is split."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import fields

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.server.models import Model
from scaleformer.server.reading import Prose, Read, read_all
from scaleformer.server.requests import Options
from scaleformer.server.sources import Splitting, clean_name, open_upload, target_name
from scaleformer.system.errors import DataError
from scaleformer.translation.translator import Translator
from scripts.soak_server import ENTITIES, bomb
from tests.books import book
from tests.formats.word import packed

AUTO = Splitting("auto", None)


@pytest.fixture
def model(translator: Translator) -> Model:
    return Model(translator, translator.decoding, "run")


async def read(proses: Sequence[Prose]) -> list[Read]:
    return read_all(proses)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("a.md", "a.md"),
        ("/etc/pass.txt", "pass.txt"),
        ("..\\..\\a\nb.docx", "ab.docx"),
        ("", "file.txt"),
        ("x" * 300 + ".md", "x" * 97 + ".md"),
        ("año.txt", "año.txt"),
    ],
)
def test_names_are_names_of_files(given, wanted):
    assert clean_name(given) == wanted


def test_a_translation_is_named_by_its_language():
    assert target_name("a/page.md", "en", "es") == "page.es.md"
    assert target_name("page.en.md", "en", "pt-BR") == "page.pt-BR.md"
    assert target_name("page_en", "en", "es") == "page.es"
    assert target_name("garden.md", "en", "") == "garden.translated.md"
    assert target_name("de.md", "", "es") == "de.es.md"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.docx", bomb(), r"^a.docx: 200,000,\d+ bytes unpacked, more than 16,000: split it$"),
        ("a.xliff", ENTITIES, "^a.xliff: "),
        ("a.docx", packed({"word/document.bin": b"a" * 20_000}), r"^a.docx: 20,000 bytes unpacked, more than 16,000"),
        ("a.epub", book(a=b"a" * 20_000), r"^a.epub: 2\d,\d+ bytes unpacked, more than 16,000: split it$"),
    ],
)
def test_bombs_are_refused(model, name, content, message):
    with pytest.raises(DataError, match=message):
        asyncio.run(open_upload(content, name, Options(), 1000, Options().settings(model, None), AUTO, read))


def test_a_model_without_a_language_gets_paragraphs(model, translator, monkeypatch):
    assert AUTO.choose(model, Options()) == ("paragraph", "")
    assert AUTO.choose(model, Options(source_language="en")) == ("sentence", "en")
    assert Splitting("sentence", "en").choose(model, Options(split="paragraph")) == ("paragraph", "en")
    monkeypatch.setitem(vars(translator), "segmentation", {"source_language": "de", "grain": "sentence"})
    model = Model(translator, translator.decoding, "run")
    assert AUTO.choose(model, Options()) == ("sentence", "de")


def test_a_client_may_choose_every_setting_of_the_search() -> None:
    """But how large a batch is, which is the server's to say."""
    assert {setting.name for setting in fields(DecodingConfig)} - {"batch_tokens", "memory_limit"} <= set(
        Options.model_fields
    )


def test_terms_are_settings_but_no_expressions(translator):
    model = Model(translator, DecodingConfig(strategy="greedy"), "run")
    settings = Options(terms={"cat": "Kater"}).settings(model, None)
    assert settings.terms == (("cat", "Kater"),)
    model = Model(translator, DecodingConfig(), "run")
    assert Options().settings(model, None).terms == ()
    for terms, options, message in (
        ({"/c.t/": "x"}, {}, "a regular expression, which a server does not take"),
        ({"cat": " "}, {}, "is not text"),
        ({"cat": "x"}, {"n_best": 2}, "n_best=2: terms are enforced in one translation"),
    ):
        with pytest.raises(ValueError, match=message):
            Options(terms=terms, **options).settings(model, None)
