"""Forced tokens: against a slow search, exhaustive search and fake models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import pytest
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.vocabulary import BOS, EOS, PAD, PLACEHOLDER, SEP
from tests.search import PLAIN, SIZE, SOURCES, STEPS, A, B, C, FakeModel, batch, free, random_logits, table

FORCED: list[dict[int, list[int]]] = [{}, {1: [A, A, B, SEP]}, {0: [B]}, {0: [SEP], 2: [C, C]}]  # of SOURCES
SHORT = DecodingConfig(strategy="greedy", max_length_ratio=1.0, max_length_offset=2)


def slow_greedy(source: Sequence[int], forced: Mapping[int, Sequence[int]]) -> tuple[tuple[int, ...], float]:
    """The most probable or forced token at every position, and the total log-probability."""
    written: tuple[int, ...] = (BOS,)
    segments = [list(text) for end, text in itertools.groupby(source[:-1], lambda t: t == SEP) if not end]
    total = 0.0
    for n, segment in enumerate(segments):
        place = 0
        while place == 0 or written[-1] != SEP:
            logits = random_logits(tuple(source), written)
            allowed = logits.clone()
            allowed[[PAD, BOS, EOS]] = -math.inf
            given = forced.get(n, [])
            full = place >= max(len(segment) + 2, len(given))
            token = given[place] if place < len(given) else SEP if full else int(allowed.argmax())
            total += float(logits.log_softmax(0)[token])
            written, place = (*written, token), place + 1
    return written[1:], total + float(random_logits(tuple(source), written).log_softmax(0)[EOS])


def test_greedy_goes_on_from_what_is_forced():
    """In a batch with one document without forced tokens."""
    found = decode(FakeModel(random_logits), *batch(*SOURCES), SHORT, forced=FORCED)
    for [hypothesis], source, forced in zip(found, SOURCES, FORCED, strict=True):
        tokens, log_probability = slow_greedy(source, forced)
        assert hypothesis.tokens == tokens
        assert hypothesis.log_probability == pytest.approx(log_probability, rel=1e-5)


def everything(source: Sequence[int], forced: Mapping[int, Sequence[int]]) -> list[tuple[float, tuple[int, ...]]]:
    """Score (without forced tokens) and tokens of every target with segments of at most two words, best first."""
    words = [t for t in PLAIN if t not in (PAD, BOS, EOS, SEP)]
    texts = [(*text, SEP) for n in range(3) for text in itertools.product(words, repeat=n)]
    choices = []
    for n in range(source.count(SEP)):
        given = tuple(forced.get(n, ()))
        choices.append([given] if SEP in given else [text for text in texts if text[: len(given)] == given])
    scored = []
    for parts in itertools.product(*choices):
        written, total, free = (BOS,), 0.0, 0
        for n, part in enumerate((*parts, (EOS,))):
            for place, token in enumerate(part):
                if place >= len(forced.get(n, ())):
                    total += float(random_logits(tuple(source), written).log_softmax(0)[token])
                    free += 1
                written = (*written, token)
        scored.append((total / free, written[1:-1]))
    return sorted(scored, reverse=True)


def test_a_wide_beam_finds_the_best_of_all_that_have_what_is_forced():
    sources = [[A, SEP, B, SEP, EOS], [C, SEP, EOS], [B, SEP, C, SEP, A, SEP, EOS]]
    forced: list[dict[int, list[int]]] = [{1: [C]}, {}, {0: [B], 1: [A, A, A, SEP]}]
    config = DecodingConfig(beam_size=130, n_best=20, max_length_ratio=0, max_length_offset=2)
    for found, source, one in zip(
        decode(FakeModel(random_logits), *batch(*sources), config, forced=forced), sources, forced, strict=True
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
def test_neither_limits_nor_rules_hold_for_what_is_forced(strategy):
    config = DecodingConfig(strategy=strategy, max_length_ratio=0, max_length_offset=1, loop_ngram_size=1)
    model = FakeModel(lambda source, written: table({A: 0.5, SEP: 0.3, B: 0.1, EOS: 0.1}))
    source = batch([A, SEP, B, SEP, C, SEP, EOS], [A, SEP, EOS])
    forced = [{0: [A, A, A, A, SEP], 1: [B, B, B]}, {}]
    for found in decode(model, *source, config, forced=forced)[0]:
        assert found.tokens[:9] == (A, A, A, A, SEP, B, B, B, SEP)
        assert not found.finished  # the limit ended the beginning
    [found], _ = decode(model, *source, config, forced=[{n: [A, A, A, SEP] for n in range(3)}, {}])
    assert found.tokens == (A, A, A, SEP) * 3
    assert found.finished


P = PLACEHOLDER


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_separators_that_count_and_placeholders(strategy):
    """No separator consumes a forced segment, which consumes one; others keep their own placeholders."""

    def logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
        return random_logits(source, written, some=range(SIZE))

    sources = [[A, SEP, P, A, SEP, A, P + 1, SEP, A, SEP, P, SEP, EOS]] * 4
    forced = [{}, {1: [A, P, A, SEP]}, {2: [A, SEP], 4: [P]}, {0: [SEP], 1: [P + 3, SEP], 3: [A, A]}]
    config = DecodingConfig(strategy=strategy, beam_size=3 if strategy == "beam" else 1)
    found = decode(FakeModel(logits), *batch(*sources), config, forced=forced)
    for [hypothesis], one in zip(found, forced, strict=True):
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


def test_forced_tokens_without_matched_segments_is_refused():
    with pytest.raises(ValueError, match="match_segments=true"):
        decode(FakeModel(random_logits), *batch([A, SEP, EOS]), free(), forced=[{0: [A]}])
