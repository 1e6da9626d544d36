"""Segments reported during decoding, and documents that are given up."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path

import pytest

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.translation.request import Listener
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import SEP
from tests.copier import CopyModel
from tests.runs import make_run, tokenizer
from tests.search import SETTINGS, SOURCES, A, FakeModel, batch, free, random_logits, table

TEXTS = [["the cat sees", "it runs", "a dog"], [""], ["a house"], ["a tree", "", "a cat sees a dog", "it"], []]
LONG = {"max_length_ratio": 2.0, "max_length_offset": 10}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("streaming") / "run"), "cpu")


class Heard:
    """The reports of a translator on its documents; those in `gone` are given up after this many calls."""

    def __init__(self, gone: dict[int, int] | None = None) -> None:
        self.gone, self.calls = gone or {}, defaultdict[int, int](int)
        self.texts: dict[int, dict[int, str]] = defaultdict(dict)

    def __call__(self, document: int, start: int, texts) -> bool:
        self.calls[document] += 1
        for place, text in enumerate(texts, start):
            assert place not in self.texts[document]
            self.texts[document][place] = text
        return self.calls[document] < self.gone.get(document, 10**9)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_tokens": 12},
        {"mode": "segment"},
        {"strategy": "sample", "batch_tokens": 40},
        {"merge_segments": False},
    ],
    ids=str,
)
def test_each_segment_is_told_once_as_it_is_in_the_end(translator, settings):
    heard = Heard()
    found = translator.translate_documents(translator.request(TEXTS, **LONG, **settings), Listener(segments=heard))
    assert found == translator.translate_documents(translator.request(TEXTS, **LONG, **settings))
    for number in (0, 2, 3):
        final = dict(enumerate(found[number].segments))
        empty = {} if settings.get("mode") != "segment" else {i: s for i, s in final.items() if TEXTS[number][i]}
        assert heard.texts[number] == (empty or final)


@pytest.mark.parametrize("settings", [{"strategy": "beam", "beam_size": 3}, {"match_segments": False}], ids=str)
def test_what_is_not_final_is_not_told(translator, settings):
    heard = Heard()
    translator.translate_documents(translator.request(TEXTS, **settings), Listener(segments=heard))
    assert not any(heard.texts.values())
    assert set(heard.calls) == {0, 2, 3}


def test_segments_come_before_the_document_is_done(translator):
    order: list[str] = []

    def watch(document, start, texts):
        order.extend("segment" for _ in texts)
        return True

    translator.translate_documents(
        translator.request([TEXTS[0]], **LONG), Listener(segments=watch, finished=lambda _: order.append("document"))
    )
    assert order == ["segment"] * 3 + ["document"]


def test_a_document_resumed_keeps_its_number(translator):
    heard = Heard()
    first = translator.translate_documents(translator.request(TEXTS[:2], **LONG))
    translator.translate_documents(translator.request(TEXTS, **LONG), Listener(segments=heard), begun=first)
    assert set(heard.texts) == {2, 3}


@pytest.mark.parametrize("name", SETTINGS)
def test_what_nobody_wants_is_given_up_and_the_others_stay(name):
    model = FakeModel(random_logits)
    config = SETTINGS[name]
    alone = decode(model, *batch(*SOURCES), config)
    given_up = decode(model, *batch(*SOURCES), config, watch=lambda place, tokens: place != 1)
    assert [found for place, found in enumerate(given_up) if place != 1] == [
        found for place, found in enumerate(alone) if place != 1
    ]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_all_given_up_ends_at_once(strategy):
    model = FakeModel(lambda source, written: table({A: 0.9, SEP: 0.1}))
    config = free(strategy=strategy, max_length_offset=500)
    decode(model, *batch(*SOURCES), config, watch=lambda place, tokens: len(model.steps) < 3)
    assert len(model.steps) == 3


def test_tokens_beyond_a_limit_are_not_handed_over(monkeypatch):
    monkeypatch.setattr("scaleformer.decoding.active.CHECK_EVERY", {"cpu": 4})
    model = FakeModel(lambda source, written: table({A: 1.0}))
    seen = defaultdict[int, list[int]](list)

    def watch(place, tokens):
        seen[place] += tokens
        return True

    found = decode(model, *batch(*SOURCES), free(strategy="greedy", max_length_offset=3), watch=watch)
    assert [tuple(seen[place]) for place in range(len(SOURCES))] == [h[0].tokens for h in found]


def test_a_translator_that_copies_tells_the_source(caplog):
    model = CopyModel(tokenizer().vocab_size)
    loaded = LoadedModel(model, tokenizer(), tokenizer(), {}, "0" * 64, Path("copier"))  # type: ignore[arg-type]
    heard = Heard({1: 1})
    with caplog.at_level(logging.WARNING):
        Translator(loaded, DecodingConfig(strategy="greedy")).translate_documents(
            Translator(loaded, DecodingConfig(strategy="greedy")).request(
                [["a b", "c"], ["d", "e"]], names=["kept", "gone"]
            ),
            Listener(segments=heard),
        )
    assert heard.texts[0] == {0: "a b", 1: "c"}
    assert heard.calls[1] == 1
