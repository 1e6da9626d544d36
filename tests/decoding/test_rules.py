"""Constraints of a search: limits, segment counts, no repeated n-grams, no padding; against fake models."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from torch import Tensor

from scaleformer.decoding.active import WASTED_STEPS
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.vocabulary import BOS, EOS, PAD, PLACEHOLDER, SEP, SEP0, SEP2, SEP3, UNK
from tests.search import SETTINGS, SIZE, SOURCES, STEPS, A, B, C, FakeModel, batch, free, loops, random_logits, table


@pytest.mark.parametrize("name", SETTINGS)
def test_a_document_at_its_limit_is_reported(name):
    config = replace(SETTINGS[name], max_length_ratio=0.5, max_length_offset=2, n_best=1)
    model = FakeModel(lambda source, written: table({A: 0.9, SEP: 0.06, EOS: 0.04}))
    found = decode(model, *batch(*SOURCES), config)
    for [hypothesis], source in zip(found, SOURCES, strict=True):
        if "matched" in name:
            texts = [list(text) for end, text in itertools.groupby(hypothesis.tokens, lambda t: t == SEP) if not end]
            sizes = [len(list(text)) for end, text in itertools.groupby(source[:-1], lambda t: t == SEP) if not end]
            assert hypothesis.tokens.count(SEP) == source.count(SEP)
            assert all(len(text) <= size // 2 + 2 for text, size in zip(texts, sizes, strict=True))
        else:
            assert len(hypothesis.tokens) <= len(source) // 2 + 2
    if name == "greedy":
        segments = (2, 3, 2, 3)  # the most tokens of one, after the longest of the source
        full = [((A,) * n + (SEP,)) * 9 for n in segments]
        assert [h[0].tokens for h in found] == [
            tokens[: len(s) // 2 + 2] for tokens, s in zip(full, SOURCES, strict=True)
        ]
    if name in ("greedy", "greedy, matched"):
        assert not any(h[0].finished for h in found)
        assert found[0][0].log_probability < 0


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_match_segments_forces_the_count(strategy):
    config = free(strategy=strategy, match_segments=True, beam_size=3)
    early = FakeModel(lambda source, written: table({EOS: 0.8, SEP: 0.1, A: 0.1}))
    late = FakeModel(lambda source, written: table({EOS: 0.01, SEP: 0.9, A: 0.09}))
    for model in (early, late):
        for [hypothesis], source in zip(decode(model, *batch(*SOURCES), config), SOURCES, strict=True):
            assert hypothesis.tokens.count(SEP) == source.count(SEP)
            assert hypothesis.tokens[-1] == SEP


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
@pytest.mark.parametrize("matched", [False, True], ids=["free", "match_segments"])
def test_a_runaway_segment_leaves_room_for_the_others(matched, strategy):
    def logits(source, written):
        if SEP not in written:
            return table({A: 0.998, SEP: 0.001 if len(written) > 5 else 1e-12, EOS: 1e-12})
        return table({SEP: 0.001, B: 0.001, EOS: 0.998} if written.count(SEP) == 3 else {SEP: 0.998, EOS: 0.002})

    config = free(strategy=strategy, beam_size=2, match_segments=matched, max_length_ratio=2.0, max_length_offset=1)
    [[found]] = decode(FakeModel(logits), *batch([A, A, SEP, B, SEP, C, SEP, EOS]), config)
    assert found.tokens == (A,) * 5 + (SEP, SEP, SEP)
    assert not found.finished


def looping_logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
    """Nearly always A B A B ..., sometimes a C or the end of the segment or document."""
    logits = random_logits(source, written)
    logits[A if written[-1] == B else B] += 6
    return logits


def slow_search(source: tuple[int, ...], n: int, limit: int) -> tuple[int, ...]:
    """Greedy search that checks the whole output for every candidate."""
    written: tuple[int, ...] = (BOS,)
    while len(written) - 1 < limit:
        ranked = looping_logits(source, written).argsort(descending=True).tolist()
        token = next(t for t in ranked if t not in (PAD, BOS) and not loops((*written[1:], t), source, n))
        if token == EOS:
            break
        written = (*written, token)
    return written[1:]


REPETITIVE = [*SOURCES, [*[A, B] * 5, SEP, C, SEP, EOS], [*[A, B, C, A, C] * 2, SEP, *[C] * 9, SEP, EOS]]
REPETITIVE += [[*[2 * SIZE, C, A] * 4, SEP, EOS]]  # the vocabulary of sources may be larger


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_greedy_without_loops(n):
    """A source that repeats itself allows its translation as much."""
    config = free(strategy="greedy", max_length_ratio=0, max_length_offset=40, loop_ngram_size=n)
    before = decode(FakeModel(looping_logits), *batch(*REPETITIVE), replace(config, loop_ngram_size=0))
    assert any(loops(h.tokens, source, n) for [h], source in zip(before, REPETITIVE, strict=True))
    found = decode(FakeModel(looping_logits), *batch(*REPETITIVE), config)
    for [hypothesis], source in zip(found, REPETITIVE, strict=True):
        assert hypothesis.tokens == slow_search(tuple(source), n, 40)


@pytest.mark.parametrize("strategy", ["beam", "sample"])
@pytest.mark.parametrize("matched", [False, True], ids=["free", "match_segments"])
def test_no_hypothesis_loops(strategy, matched):
    config = free(strategy=strategy, beam_size=4, n_best=4, match_segments=matched, loop_ngram_size=2)
    for settings, looping in ((config, False), (replace(config, loop_ngram_size=0), True)):
        found = zip(decode(FakeModel(looping_logits), *batch(*REPETITIVE), settings), REPETITIVE, strict=True)
        assert any(loops(h.tokens, source, 2) for hypotheses, source in found for h in hypotheses) == looping


def test_what_the_source_says_twice_may_be_said_twice():
    """The source has A B C ? twice, and so has the translation; B A B A ... ends when it has spent its slack."""
    text = [A, B, C, UNK, A, B, C, UNK, C]

    def logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
        place = len(written) - 1
        if place < len(text):
            return table({text[place]: 0.9, SEP: 0.1, EOS: 1e-9})
        return table({A if written[-1] == B else B: 0.9, SEP: 0.1, EOS: 1e-9} if SEP not in written else {EOS: 1.0})

    config = DecodingConfig(strategy="greedy", max_length_ratio=3.0, max_length_offset=10)
    [[found]] = decode(FakeModel(logits), *batch([*text, SEP, EOS]), config)
    # B A B A and A B A B stand twice each after seven tokens; then come six that are too many
    assert found.tokens == (*text, *[B, A] * 6, B, SEP)


def test_segments_may_repeat_each_other():
    model = FakeModel(lambda source, written: table({A: 0.9, SEP: 0.08, EOS: 0.02}))
    config = free(strategy="greedy", match_segments=True, loop_ngram_size=1)
    [[found]] = decode(model, *batch([B, SEP, C, SEP, A, SEP, EOS]), config)
    assert found.tokens == (*[A] * 7, SEP) * 3  # one, and six that are too many
    assert found.finished


def test_pads_and_starts_are_never_written():
    model = FakeModel(lambda source, written: table({PAD: 0.5, BOS: 0.3, A: 0.15, EOS: 0.05}))
    for strategy in ("greedy", "beam", "sample"):
        config = free(strategy=strategy, n_best=1 if strategy == "greedy" else 3)
        for hypotheses in decode(model, *batch(*SOURCES), config):
            assert all({PAD, BOS}.isdisjoint(h.tokens) for h in hypotheses)


def test_what_is_done_leaves_the_batch_after_a_while():
    """One of five documents ends at once: compacting waits until enough steps were wasted on it."""
    model = FakeModel(lambda source, written: table({EOS: 0.9, A: 0.1} if source[0] == B else {A: 0.9, EOS: 0.1}))
    config = free(strategy="greedy", max_length_ratio=0, max_length_offset=50)
    decode(model, *batch([B, EOS], *[[A, EOS]] * 4), config)
    assert model.steps == [5] * (WASTED_STEPS * 4) + [4] * (50 - WASTED_STEPS * 4)


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_no_segment_of_the_source_is_left_unless_told_to(strategy):
    """The batch also has a source without <sep>, which sets no segment count."""
    model = FakeModel(lambda source, written: table({EOS: 0.98, SEP: 0.01, A: 0.01}))
    sources = ([A, SEP] * 9 + [EOS], [A, EOS])
    [[whole], [other]] = decode(model, *batch(*sources), DecodingConfig(strategy=strategy, seed=2))
    assert whole.tokens.count(SEP) == 9
    assert whole.finished
    assert other.tokens == ()
    [[early], _] = decode(model, *batch(*sources), free(strategy=strategy, seed=2))
    assert early.tokens == ()


@pytest.mark.parametrize("ngram", [0, 2])
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_counted_separators_consume_every_source_segment_once(strategy: str, ngram: int) -> None:
    """Against the model's preference; no two empty target segments follow each other for the same source."""

    def logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
        return random_logits(source, written, some=range(SIZE))

    config = DecodingConfig(strategy=strategy, beam_size=3 if strategy == "beam" else 1, loop_ngram_size=ngram)
    sources = [[A, SEP, B, A, SEP, B, SEP, EOS], [A, SEP, EOS], [B, B, SEP, A, SEP, A, SEP, B, SEP, B, SEP, EOS]]
    seen = set()
    for found, source in zip(decode(FakeModel(logits), *batch(*sources), config), sources, strict=True):
        tokens = found[0].tokens
        assert sum(STEPS.get(token, 0) for token in tokens) == source.count(SEP)
        assert tokens[-1] in STEPS
        ends = [place for place, token in enumerate(tokens) if token in STEPS]
        assert all(
            tokens[place] != SEP0 or place - before > 1 for before, place in zip([-1, *ends], ends, strict=False)
        )
        seen |= {tokens[place] for place in ends}
    assert len(seen) > 2  # more than one kind of separator was written


@pytest.mark.parametrize("ends", [True, False], ids=["ends by itself", "would go on"])
def test_a_segment_at_its_limit_consumes_what_the_model_says(ends: bool) -> None:
    """A forced end consumes one segment; an end that the model chose consumes as many as it says."""

    def logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
        two = 0.7 if ends and A in written else 0.1
        return table({A: 0.6, SEP2: two, SEP: 0.09, EOS: 0.01})

    config = DecodingConfig(strategy="greedy", max_length_ratio=0, max_length_offset=1)
    [[found]] = decode(FakeModel(logits), *batch([B, SEP, B, SEP, EOS]), config)
    assert found.tokens == ((A, SEP2) if ends else (A, SEP, A, SEP))
    assert found.finished == ends


P = PLACEHOLDER


@pytest.mark.parametrize("ngram", [0, 1])
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_each_placeholder_of_a_segment_is_written_once_before_its_end(strategy: str, ngram: int) -> None:
    """Against the model's preference; no placeholder that the segment lacks."""

    def logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
        return random_logits(source, written, some=range(SIZE))

    config = DecodingConfig(strategy=strategy, beam_size=3 if strategy == "beam" else 1, loop_ngram_size=ngram)
    sources = [
        [P, A, P + 1, SEP, B, SEP, P, P + 8, SEP, EOS],
        [A, SEP, B, SEP, EOS],
        [A, SEP, P + 3, SEP, A, SEP, P + 2, SEP, P + 1, A, P, P + 2, P + 3, SEP, B, SEP, EOS],
    ]
    for found, source in zip(decode(FakeModel(logits), *batch(*sources), config), sources, strict=True):
        wanted, written = placeholders(source, dict.fromkeys(STEPS, 1)), placeholders(found[0].tokens, STEPS)
        assert {n: sorted(some) for n, some in written.items()} == {n: sorted(some) for n, some in wanted.items()}


def placeholders(tokens: Sequence[int], steps: dict[int, int]) -> dict[int, list[int]]:
    """Those of each source segment, by its number."""
    found: dict[int, list[int]] = {}
    segment = 0
    for token in tokens:
        segment += steps.get(token, 0)
        if P <= token < P + 9:
            found.setdefault(segment, []).append(token)
    return found


def test_placeholders_take_the_last_room_of_a_segment() -> None:
    config = DecodingConfig(strategy="greedy", max_length_ratio=0, max_length_offset=4)
    model = FakeModel(lambda source, written: table({A: 0.9, SEP: 0.05, P: 0.02, P + 1: 0.02, EOS: 0.01}))
    [[found]] = decode(model, *batch([P, A, P + 1, SEP, EOS]), config)
    assert found.tokens == (A, A, P, P + 1, SEP)
    assert not found.finished


def test_segments_that_may_not_be_merged_have_one_each() -> None:
    logits = table({SEP3: 0.5, SEP2: 0.3, A: 0.15, SEP: 0.04, EOS: 0.01})
    model = FakeModel(lambda source, written: logits)
    source = batch([A, SEP, B, SEP, A, SEP, EOS])
    config = DecodingConfig(strategy="greedy", max_length_ratio=0, max_length_offset=1)
    [[merged]] = decode(model, *source, config)
    [[apart]] = decode(model, *source, replace(config, merge_segments=False))
    assert merged.tokens == (SEP3,)
    assert apart.tokens == (A, SEP) * 3


def test_a_loop_is_one_in_all_that_answers_a_source_segment() -> None:
    """Also if the model splits it by `<sep0>`; the next segment begins anew."""
    logits = table({A: 0.5, SEP0: 0.3, B: 0.15, SEP: 0.04, EOS: 0.01})
    config = DecodingConfig(strategy="greedy", loop_ngram_size=2, max_length_ratio=0, max_length_offset=12)
    source = [A, SEP, B, SEP, EOS]
    [[found]] = decode(FakeModel(lambda source, written: logits), *batch(source), config)
    assert found.tokens == (*[A] * 8, SEP0, A, B, A, SEP) * 2
    assert not loops(found.tokens, source, 2)


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_a_segment_is_not_shorter_than_asked_for(strategy: str) -> None:
    """From the tokens of its own source, never above its limit; an empty source sets no minimum."""
    logits = table({A: 0.02, B: 0.02, SEP0: 0.2, SEP: 0.6, SEP2: 0.1, EOS: 0.06})
    model = FakeModel(lambda source, written: logits)
    source = [A, B, A, SEP, SEP, A, B, A, B, A, B, A, SEP, EOS]
    config = DecodingConfig(strategy=strategy, min_length_ratio=0.75, max_length_ratio=0, max_length_offset=4)
    for [found, *_] in (decode(model, *batch(source, [A, EOS]), config),):
        sizes, tokens = [], 0
        for token in found[0].tokens:
            tokens += 1
            if STEPS.get(token, 0):
                sizes.append(tokens - 1)
                tokens = 0
        assert sizes[0] >= 2
        assert sizes[-1] >= (4 if len(sizes) == 3 else 0)
    with pytest.raises(ValueError, match=r"min_length_ratio is 0.5: it must be 0 with decoding.match_segments=false"):
        free(min_length_ratio=0.5)
