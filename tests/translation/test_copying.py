"""Copying unknown words from the source: by hand with given weights, and with a model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.model.transformer import ModelConfig, Transformer
from scaleformer.translation.config import DecodingConfig
from scaleformer.translation.copying import decode_copying
from scaleformer.translation.translator import Translator
from scaleformer.translation.word_alignments import Unit
from scaleformer.vocabulary import SEP, SEP0, SEP2, UNK
from tests.runs import DOCUMENTS

TEXTS = [text for d in DOCUMENTS for side in ("source", "target") for text in d[side]]
BARE = Tokenizer.train(TEXTS, 45, byte_fallback=False)


def test_an_unknown_piece_is_written_as_asked() -> None:
    tokens = BARE.encode("sees Łódź, ok")
    assert BARE.decode(tokens) == "sees  \u2047 d \u2047  ok"
    assert BARE.decode(tokens, "#") == "sees #d# ok"
    assert BARE.decode(BARE.encode("the cat"), "#") == "the cat"


@pytest.mark.parametrize(
    ("targets", "looked_at", "expected", "count"),
    [
        # the first of several unknown tokens in a word decides; punctuation is dropped
        ([("ok Łódź sees", (SEP,)), ("a dog", (SEP,))], {"cat": ["(Kraków),", "the"]}, ["ok Kraków sees", "a dog"], 1),
        ([("Ł", (SEP0,)), ("x Ź", (SEP2,))], {"cat": ["the", "dog."], "x": ["a"]}, ["the", "dog a"], 3),
        ([("Ł", (SEP,))], {"cat": ["dog."]}, ["dog"], 1),  # not all consumed: among all words
        ([("cat", (SEP,)), ("dog", (SEP,))], {}, ["cat", "dog"], 0),
    ],
)
def test_the_word_that_is_looked_at_most_is_copied(
    monkeypatch: pytest.MonkeyPatch,
    targets: list[tuple[str, tuple[int, ...]]],
    looked_at: dict[str, list[str]],
    expected: list[str],
    count: int,
) -> None:
    sources = ["the cat (Kraków),", "a dog."]
    wanted = [word for words in looked_at.values() for word in words]
    units_seen: list[Unit] = []

    def attention(translator: object, units: Sequence[Unit]):
        words = iter(wanted)
        for unit in units:
            units_seen.append(unit)
            texts = [word for text in unit.sources for word in text.split()]
            numbers = [n for n, text in enumerate(unit.sources) for _ in text.split()]
            weights = np.full((len(unit.target), len(unit.source)), 0.01, dtype=np.float32)
            starts = {}
            place = 0
            for n, text in enumerate(unit.sources):
                for token in BARE.encode(text):
                    if BARE.piece(token).startswith("\u2581") or place == 0:
                        starts.setdefault(len(starts), place)
                    place += 1
                place += 1
                assert numbers.count(n) == len(text.split())
            for row in np.flatnonzero(np.array(unit.target) == UNK):
                weights[row, starts[texts.index(next(words))]] = 0.9
            yield weights

    monkeypatch.setattr("scaleformer.translation.copying.attention_in_runs", attention)
    tokens = [token for text, ends in targets for token in (*BARE.encode(text), *ends)]
    translator = SimpleNamespace(source_tokenizer=BARE, target_tokenizer=BARE)
    written, copied = decode_copying(translator, sources, tokens)  # type: ignore[arg-type]
    assert [text for text, _ in written] == expected
    assert copied == count


def make_translator() -> Translator:
    torch.manual_seed(1)
    size = BARE.vocab_size
    model = Transformer(ModelConfig(size, size, encoder_layers=1, decoder_layers=1, width=16, feedforward=16, heads=2))
    return Translator(LoadedModel(model.eval(), BARE, BARE, {}, "0" * 64, Path("copying")))


def test_a_model_copies_what_it_cannot_write(caplog: pytest.LogCaptureFixture) -> None:
    """Begins with characters that the vocabulary lacks; only these texts change."""
    translator = make_translator()
    sources = [["the (Łódź) sees", "it runs"], ["a dog"]]
    tokens = [*BARE.encode("Ł a"), SEP, *BARE.encode("cat"), SEP]
    [(first, _), (second, _)], count = decode_copying(translator, sources[0], tokens)
    assert first in {f"{word} a" for word in ("the", "Łódź", "sees")}
    assert (second, count) == ("cat", 1)
    settings = DecodingConfig(strategy="greedy", max_length_ratio=0.5)
    usual = translator.translate_documents(sources, settings)
    with caplog.at_level(logging.WARNING):
        found = translator.translate_documents(sources, settings, copy_unknown=True)
    for before, after in zip(usual, found, strict=True):
        assert len(before.segments) == len(after.segments)
        for old, new in zip(before.segments, after.segments, strict=True):
            assert new == old if "\u2047" not in old else "\u2047" not in new
    unknown = sum("\u2047" in text for one in usual for text in one.segments)
    assert ("unknown words were copied from the source" in caplog.text) is (unknown > 0)
