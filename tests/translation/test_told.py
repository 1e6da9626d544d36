"""Given parts of translations: against a slow search, exhaustive search, and with a real model."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.evaluation.log_probabilities import score_documents
from scaleformer.system.errors import DataError
from scaleformer.translation.told import Told, parse_told
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS, PAD, PLACEHOLDER, SEP
from tests.copier import CopyModel
from tests.runs import DOCUMENTS, make_run
from tests.search import PLAIN, SIZE, SOURCES, STEPS, A, B, C, FakeModel, batch, free, random_logits, table

TOLD: list[dict[int, list[int]]] = [{}, {1: [A, A, B, SEP]}, {0: [B]}, {0: [SEP], 2: [C, C]}]  # of SOURCES
SHORT = DecodingConfig(strategy="greedy", max_length_ratio=1.0, max_length_offset=2)


def slow_greedy(source: Sequence[int], told: Mapping[int, Sequence[int]]) -> tuple[tuple[int, ...], float]:
    """The most probable or told token at every position, and the total log-probability."""
    written: tuple[int, ...] = (BOS,)
    segments = [list(text) for end, text in itertools.groupby(source[:-1], lambda t: t == SEP) if not end]
    total = 0.0
    for n, segment in enumerate(segments):
        place = 0
        while place == 0 or written[-1] != SEP:
            logits = random_logits(tuple(source), written)
            allowed = logits.clone()
            allowed[[PAD, BOS, EOS]] = -math.inf
            forced = told.get(n, [])
            full = place >= max(len(segment) + 2, len(forced))
            token = forced[place] if place < len(forced) else SEP if full else int(allowed.argmax())
            total += float(logits.log_softmax(0)[token])
            written, place = (*written, token), place + 1
    return written[1:], total + float(random_logits(tuple(source), written).log_softmax(0)[EOS])


def test_greedy_goes_on_from_what_is_told():
    """In a batch with one document without told tokens."""
    found = decode(FakeModel(random_logits), *batch(*SOURCES), SHORT, forced=TOLD)
    for [hypothesis], source, told in zip(found, SOURCES, TOLD, strict=True):
        tokens, log_probability = slow_greedy(source, told)
        assert hypothesis.tokens == tokens
        assert hypothesis.log_probability == pytest.approx(log_probability, rel=1e-5)


def everything(source: Sequence[int], told: Mapping[int, Sequence[int]]) -> list[tuple[float, tuple[int, ...]]]:
    """Score (without told tokens) and tokens of every target with segments of at most two words, best first."""
    words = [t for t in PLAIN if t not in (PAD, BOS, EOS, SEP)]
    texts = [(*text, SEP) for n in range(3) for text in itertools.product(words, repeat=n)]
    choices = []
    for n in range(source.count(SEP)):
        given = tuple(told.get(n, ()))
        choices.append([given] if SEP in given else [text for text in texts if text[: len(given)] == given])
    scored = []
    for parts in itertools.product(*choices):
        written, total, free = (BOS,), 0.0, 0
        for n, part in enumerate((*parts, (EOS,))):
            for place, token in enumerate(part):
                if place >= len(told.get(n, ())):
                    total += float(random_logits(tuple(source), written).log_softmax(0)[token])
                    free += 1
                written = (*written, token)
        scored.append((total / free, written[1:-1]))
    return sorted(scored, reverse=True)


def test_a_wide_beam_finds_the_best_of_all_that_say_what_is_told():
    sources = [[A, SEP, B, SEP, EOS], [C, SEP, EOS], [B, SEP, C, SEP, A, SEP, EOS]]
    told: list[dict[int, list[int]]] = [{1: [C]}, {}, {0: [B], 1: [A, A, A, SEP]}]
    config = DecodingConfig(beam_size=130, n_best=20, max_length_ratio=0, max_length_offset=2)
    for found, source, one in zip(
        decode(FakeModel(random_logits), *batch(*sources), config, forced=told), sources, told, strict=True
    ):
        expected = everything(source, one)[:20]
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], rel=1e-5)


def test_an_improbable_text_does_not_change_what_stands_before_it():
    """By probability alone, hypotheses that delay it would rank first until the limit."""

    def logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
        return table({A: 0.4, SEP: 0.5, EOS: 0.1 - 1e-9, C: 1e-9})

    [[found]] = decode(
        FakeModel(logits), *batch([A, SEP, B, SEP, EOS]), DecodingConfig(beam_size=2, length_penalty=0),
        forced=[{1: [C, C, SEP]}],
    )  # fmt: skip
    assert found.tokens == (SEP, C, C, SEP)
    assert found.log_probability == pytest.approx(math.log(0.5 * 1e-9**2 * 0.5 * 0.1), rel=1e-5)


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_neither_limits_nor_rules_hold_for_what_is_told(strategy):
    config = DecodingConfig(strategy=strategy, max_length_ratio=0, max_length_offset=1, no_repeat_ngram_size=1)
    model = FakeModel(lambda source, written: table({A: 0.5, SEP: 0.3, B: 0.1, EOS: 0.1}))
    source = batch([A, SEP, B, SEP, C, SEP, EOS], [A, SEP, EOS])
    told = [{0: [A, A, A, A, SEP], 1: [B, B, B]}, {}]
    for found in decode(model, *source, config, forced=told)[0]:
        assert found.tokens[:9] == (A, A, A, A, SEP, B, B, B, SEP)
        assert not found.finished  # the limit ended the beginning
    [found], _ = decode(model, *source, config, forced=[{n: [A, A, A, SEP] for n in range(3)}, {}])
    assert found.tokens == (A, A, A, SEP) * 3
    assert found.finished


P = PLACEHOLDER


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_separators_that_count_and_placeholders(strategy):
    """No separator consumes a told segment, which consumes one; others keep their own placeholders."""

    def logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
        return random_logits(source, written, some=range(SIZE))

    sources = [[A, SEP, P, A, SEP, A, P + 1, SEP, A, SEP, P, SEP, EOS]] * 4
    told = [{}, {1: [A, P, A, SEP]}, {2: [A, SEP], 4: [P]}, {0: [SEP], 1: [P + 3, SEP], 3: [A, A]}]
    config = DecodingConfig(strategy=strategy, beam_size=3 if strategy == "beam" else 1)
    found = decode(FakeModel(logits), *batch(*sources), config, forced=told)
    for [hypothesis], one in zip(found, told, strict=True):
        parts: dict[int, list[int]] = {}
        segment = 0
        for token in hypothesis.tokens:
            parts.setdefault(segment, []).append(token)
            segment += STEPS.get(token, 0)
        assert segment == 5
        for n, tokens in one.items():
            assert parts[n][: len(tokens)] == tokens
            assert SEP not in tokens or len(parts[n]) == len(tokens)
        for n, placeholder in ((1, P), (2, P + 1), (4, P)):
            if SEP not in one.get(n, []):
                assert [token for token in parts[n] if P <= token < P + 9] == [placeholder]


def test_told_without_matched_segments_is_refused():
    with pytest.raises(ValueError, match="match_segments=true"):
        decode(FakeModel(random_logits), *batch([A, SEP, EOS]), free(), forced=[{0: [A]}])


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("told") / "run"), "cpu")


SOURCE = [document["source"] for document in DOCUMENTS]


@pytest.mark.parametrize("strategy", ["greedy", "sample"])
def test_a_model_told_its_own_words_writes_the_same(translator, strategy):
    """All segments but one, all beginnings, or everything, in the tokens of the model's own output."""
    config = DecodingConfig(strategy=strategy, max_length_ratio=0.5, merge_segments=False)
    vocabulary = translator.source_tokenizer
    sources = batch(*([*vocabulary.encode_segments(segments), EOS] for segments in SOURCE))
    found = [one.tokens for [one] in decode(translator.model, *sources, config)]
    own: list[dict[int, list[int]]] = []
    for tokens in found:
        parts: dict[int, list[int]] = {}
        for token in tokens:
            parts.setdefault(sum(map(SEP.__eq__, itertools.chain(*parts.values()))), []).append(token)
        own.append(parts)
    some = [{n: part for n, part in parts.items() if n != 1} for parts in own]
    begun = [{n: part[:2] for n, part in parts.items()} for parts in own]
    for told in (own, some, begun):
        again = decode(translator.model, *sources, config, forced=told)
        assert [one.tokens for [one] in again] == found


@pytest.mark.parametrize("settings", [{"mode": "segment"}, {"max_tokens": 12}], ids=str)
def test_pieces_of_a_document_are_told_their_own(translator, settings):
    found = translator.translate(
        SOURCE, fixed=[{0: "eins"}, {}, {2: "zwei"}], begin=[{1: "x"}, {0: "y"}, {}], **settings
    )
    assert (found[0][0], found[2][2]) == ("eins", "zwei")
    assert (found[0][1][0], found[1][0][0]) == ("x", "y")


def test_a_document_that_is_all_fixed_has_the_probability_of_its_text(translator):
    targets = [document["target"] for document in DOCUMENTS]
    fixed = [dict(enumerate(target)) for target in targets]
    for settings in ({}, {"strategy": "beam", "beam_size": 3}, {"strategy": "sample", "n_best": 2}):
        found = translator.translate_documents(SOURCE, fixed=fixed, **settings)
        for one, target, score in zip(found, targets, score_documents(translator, SOURCE, targets), strict=True):
            assert list(one.segments) == target
            assert one.finished
            assert one.hypotheses[0].log_probability == pytest.approx(score.log_probability, rel=1e-4)


def test_a_fixed_text_comes_out_as_it_is():
    """Also with characters that the vocabulary lacks, and for a document without text."""
    texts = [text for d in DOCUMENTS for side in ("source", "target") for text in d[side]]
    bare = Tokenizer.train(texts, 45, byte_fallback=False)
    loaded = LoadedModel(CopyModel(bare.vocab_size), bare, bare, {}, "0" * 64, Path("copier"))  # type: ignore[arg-type]
    copier = Translator(loaded, DecodingConfig(strategy="greedy"))
    text = " Łódź,\t〈x〉\n  twice  "
    found = copier.translate([["the cat", "sees"], [" ", ""]], fixed=[{1: text}, {0: text}])
    assert [one[n] for one, n in zip(found, (1, 0), strict=True)] == [text, text]
    [[begun, _]] = copier.translate([["the cat", "sees"]], begin=[{0: "Łó"}])
    assert begun.startswith("Łó")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fixed": [{}]}, "fixed has 1 entries for 3 documents: wanted one for each"),
        (
            {"fixed": [{}, {1: "x"}, {}]},
            r"document 1: fixed\[1\]: no such source segment: there are 1, numbered from 0",
        ),
        ({"begin": [{}, {}, {0: 7}]}, r"document 2: begin\[0\] is int, wanted a string"),
        ({"fixed": [{0: "x"}, {}, {}], "begin": [{0: "y"}, {}, {}]}, "segment 0 is in both fixed and begin"),
        ({"fixed": [{0: "x"}, {}, {}], "match_segments": False}, "set decoding.match_segments=true"),
    ],
    ids=["documents", "no such segment", "no text", "both", "match_segments"],
)
def test_what_cannot_be_told_is_one_line(translator, settings: dict[str, Any], message):
    with pytest.raises(ValueError, match=message):
        translator.translate_documents(SOURCE, **settings)


def test_json_lines_tell():
    assert not parse_told('{"source": ["a"]}', "in.jsonl:1", 1)
    line = json.dumps({"source": ["a"] * 13, "fixed": {"12": "text"}, "begin": {"3": "El"}})
    assert parse_told(line, "in.jsonl:1", 13) == Told({12: "text"}, {3: "El"})


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"fixed": ["x"]}, r"in.jsonl:7: 'fixed' is list, wanted an object of texts"),
        ({"fixed": {"2": "x"}}, r"in.jsonl:7: fixed\[2\]: no such source segment: there are 2, numbered from 0"),
        ({"begin": {"-1": "x"}}, r"in.jsonl:7: begin\['-1'\]: no such source segment"),
        ({"begin": {"1": None}}, r"in.jsonl:7: begin\[1\] is NoneType, wanted a string"),
        ({"begin": {"1": "\ud800"}}, r"in.jsonl:7: begin\[1\] has a lone surrogate"),
    ],
    ids=["list", "beyond", "before", "none", "surrogate"],
)
def test_what_json_lines_cannot_tell_is_one_line(record, message):
    with pytest.raises(DataError, match=message):
        parse_told(json.dumps(record), "in.jsonl:7", 2)
