"""Alternatives of single segments, against a search for each segment alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.translation.alternatives import Alternative, alternatives_config, find_alternatives
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, make_run

SOURCES = [document["source"] for document in DOCUMENTS]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("alternatives") / "run"), "cpu")


def test_alternatives_are_those_of_a_search_with_the_rest_fixed(translator):
    config = alternatives_config(DecodingConfig(beam_size=2, max_length_ratio=0.2, max_length_offset=2, cache="none"))
    told = [ForcedTexts({1: "fest"}), ForcedTexts(), ForcedTexts({}, {2: "e"})]
    fixed, begin = [one.fixed for one in told], [one.begin for one in told]
    translations = translator.translate_documents(translator.request(SOURCES, config, fixed=fixed, begin=begin))
    found = find_alternatives(PieceTranslator(translator, config), SOURCES, translations, told, 3)
    assert [len(segments) for segments in found] == [2, 1, 3]
    assert found[0][1] == [Alternative("fest", translations[0].hypotheses[0].log_probability)]
    assert all(alternative.text.startswith("e") for alternative in found[2][2])
    for document, n in ((0, 0), (1, 0), (2, 0), (2, 1)):
        rest = {m: text for m, text in enumerate(translations[document].segments) if m != n}
        [expected] = translator.translate_documents(
            translator.request(
                [SOURCES[document]],
                config,
                fixed=[rest],
                begin=[begin[document] if n == 2 else {}],
                beam_size=3,
                n_best=3,
            )
        )
        texts = list(dict.fromkeys(h.segments[n] for h in expected.hypotheses))
        assert [alternative.text for alternative in found[document][n]] == texts
        assert len(texts) > 1
        assert found[document][n][0].log_probability == pytest.approx(expected.hypotheses[0].log_probability, rel=1e-4)


def test_fixed_segments_are_in_the_cache_and_the_translation_is_not(translator, monkeypatch):
    config = DecodingConfig(beam_size=2, max_length_ratio=0.2, max_length_offset=2)
    told = [ForcedTexts({1: "fest"}), ForcedTexts(), ForcedTexts(known=(("a", "b"),))]
    request = replace(translator.request(SOURCES, config), forced=told)
    translations = translator.translate_documents(request)
    known = []
    monkeypatch.setattr(PieceTranslator, "_cache", lambda self, pairs: known.append(pairs))
    find_alternatives(PieceTranslator(translator, config), SOURCES, translations, told, 2)
    assert set(known) == {((SOURCES[0][1], "fest"),), (), (("a", "b"),)}
